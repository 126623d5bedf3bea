// A bar for each run of a session: time queued and running, inputs that steered it, and how it ended.

import { el, fill, svg } from "../dom.js";
import { pluralize, runStateName } from "../format.js";
import { formatDateTime, formatDuration } from "../time_format.js";
import { runningMs } from "./runs.js";

const COLLAPSED_COUNT = 8;
const EXPANDED_COUNT = 30;
const HEIGHT = 22;
const LABEL_WIDTH = 38;
const END_WIDTH = 90;
const MIN_BAR_WIDTH = 2;
const REFRESH_MS = 1000;

/** `draw()` shows the current runs; active runs are also redrawn every second. */
export function timeline(runs, signal) {
  const container = el("div", { class: "timeline" });
  let maxCount = COLLAPSED_COUNT;
  let width = 0;
  let lastDrawn = null;

  function draw() {
    const { isActive } = runs;
    const state = `${runs.revision} ${maxCount} ${width} ${isActive ? Date.now() : ""}`;
    if (state === lastDrawn || width === 0) return;
    lastDrawn = state;
    const shown = runs.all.slice(-maxCount).reverse();
    if (shown.length === 0) {
      fill(container, el("p", { class: "muted" }, "No runs yet"));
      return;
    }
    const longest = Math.max(...shown.map((run) => durationMs(run)), 1);
    fill(container, list(shown, (width - LABEL_WIDTH - END_WIDTH) / longest, width), footer(shown.length), legend());
  }

  function footer(count) {
    if (runs.all.length <= COLLAPSED_COUNT) return null;
    const label = maxCount === COLLAPSED_COUNT ? "Show more" : "Show fewer";
    const button = el("button", { type: "button", class: "plain", on: { click: toggle } }, label);
    const summary = count < runs.all.length && `Last ${count} of ${runs.all.length} runs`;
    return el("p", { class: "muted small-text" }, summary, " ", button);
  }

  function toggle() {
    maxCount = maxCount === COLLAPSED_COUNT ? EXPANDED_COUNT : COLLAPSED_COUNT;
    draw();
    container.querySelector("button").focus();
  }

  const observer = new ResizeObserver(([entry]) => {
    width = Math.floor(entry.contentRect.width);
    draw();
  });
  observer.observe(container);
  const timer = setInterval(draw, REFRESH_MS);
  signal.addEventListener("abort", () => { observer.disconnect(); clearInterval(timer); });
  return { node: container, draw };
}

function list(runs, scale, width) {
  const items = runs.map((run) => el("li", {}, runChart(run, scale, width)));
  return el("ol", { reversed: true, "aria-label": "Runs, newest first" }, items);
}

function runChart(run, scale, width) {
  const label = describe(run);
  const middle = HEIGHT / 2;
  const x = (time) => LABEL_WIDTH + (time - run.from) * scale;
  const until = run.until ?? Math.max(Date.now(), run.from);
  const end = Math.max(x(until), LABEL_WIDTH + MIN_BAR_WIDTH);
  return svg(
    "svg",
    { role: "img", "aria-label": label, width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}` },
    svg("title", {}, label),
    svg("text", { x: 0, y: middle + 4, class: "label" }, `#${run.number}`),
    run.phases.map((phase) => bar(phase, x, until)),
    run.steered.map((time) => steerMark(x(time), time)),
    stateIcon(run.state, end + 11, middle),
    svg("text", { x: end + 23, y: middle + 4, class: "label" }, durationText(run)),
  );
}

function bar(phase, x, until) {
  const from = x(phase.from);
  const isRunning = phase.state === "running";
  const width = Math.max(x(phase.until ?? until) - from, isRunning ? MIN_BAR_WIDTH : 0);
  const height = isRunning ? 12 : 6;
  return svg("rect", { class: phase.state, x: from, y: (HEIGHT - height) / 2, width, height, rx: 1.5 });
}

function steerMark(x, time) {
  return svg("path", { class: "steered", d: `M${x} 10 l5 -8 h-10 z` }, svg("title", {}, `Steered ${formatDateTime(time)}`));
}

function stateIcon(state, x, y) {
  const icons = {
    pending: () => svg("circle", { cx: x, cy: y, r: 4, class: "sign hollow" }),
    queued: () => svg("circle", { cx: x, cy: y, r: 4, class: "sign hollow" }),
    waiting: () => svg("path", { d: `M${x - 2.5} ${y - 5} v10 m5 -10 v10`, class: "sign line warn" }),
    running: () => svg("circle", { cx: x, cy: y, r: 4.5, class: "sign full run" }),
    succeeded: () => svg("path", { d: `M${x - 5} ${y} l4 4 l7 -8`, class: "sign line good" }),
    failed: () => svg("path", { d: `M${x - 4} ${y - 4} l8 8 m0 -8 l-8 8`, class: "sign line bad" }),
    cancelled: () => svg("rect", { x: x - 4, y: y - 4, width: 8, height: 8, class: "sign full warn" }),
  };
  return icons[state]();
}

function legend() {
  const entries = [
    ["Queued", svg("rect", { class: "queued", x: 1, y: 7, width: 14, height: 6 }), stateIcon("queued", 24, 10)],
    ["Running", svg("rect", { class: "running", x: 1, y: 4, width: 14, height: 12, rx: 1.5 }), stateIcon("running", 24, 10)],
    ["Waiting", svg("rect", { class: "waiting", x: 1, y: 7, width: 14, height: 6 }), stateIcon("waiting", 24, 10)],
    ["Steered", svg("path", { class: "steered", d: "M10 14 l5 -8 h-10 z" })],
    ...["succeeded", "failed", "cancelled"].map((state) => [runStateName(state), stateIcon(state, 10, 10)]),
  ];
  const icon = (shapes) => svg("svg", { width: shapes.length > 1 ? 30 : 20, height: 20, "aria-hidden": "true" }, shapes);
  return el("p", { class: "legend" }, entries.map(([name, ...shapes]) => el("span", {}, icon(shapes), name)));
}

/** The accessible description of a bar. */
function describe(run) {
  const times = { queued: 0, running: 0, waiting: 0 };
  for (const phase of run.phases) times[phase.state] += (phase.until ?? Date.now()) - phase.from;
  const steered = run.steered.length > 0 ? `, steered ${pluralize(run.steered.length, "time")}` : "";
  const name = runStateName(run.state).toLowerCase();
  const state = run.until === null ? `${name} now` : name;
  const waiting = times.waiting > 0 ? `, waiting ${formatDuration(times.waiting)}` : "";
  const durations = `queued ${formatDuration(times.queued)}, running ${formatDuration(times.running)}${waiting}`;
  return `Run ${run.number}, ${formatDateTime(run.from)}: ${durations}${steered}, ${state}.`;
}

/** The time a run was running. While it is queued, the time in the queue. */
function durationText(run) {
  const running = runningMs(run);
  if (running !== null) return formatDuration(running);
  return run.until === null ? formatDuration(durationMs(run)) : "Not started";
}

function durationMs(run) {
  return Math.max((run.until ?? Date.now()) - run.from, 0);
}
