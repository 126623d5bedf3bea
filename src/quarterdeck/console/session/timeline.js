// The runs of a session as a picture: a bar for each, how long it waited and worked, where it was steered, and how it
// ended.

import { el, fill, svg } from "../dom.js";
import { exact, span } from "../times.js";
import { count } from "./conversation.js";

const FEW = 8;
const MANY = 30;
const HEIGHT = 22;
const LABEL_WIDTH = 38;
const END_WIDTH = 90;
const LEAST_WIDTH = 2;
const TICK_MS = 1000;

/** `draw()` brings it up to the runs; it also grows by itself while one is active. */
export function timeline(runs, signal) {
  const place = el("div", { class: "timeline" });
  let shown = FEW;
  let width = 0;
  let drawnAs = null;

  function draw() {
    const isActive = runs.all.at(-1)?.until === null;
    const now = `${runs.revision} ${shown} ${width} ${isActive ? Date.now() : ""}`;
    if (now === drawnAs || width === 0) return;
    drawnAs = now;
    const listed = runs.all.slice(-shown).reverse();
    if (listed.length === 0) {
      fill(place, el("p", { class: "quiet" }, "No run yet. The first message starts one."));
      return;
    }
    const longest = Math.max(...listed.map((run) => lasted(run)), 1);
    fill(place, list(listed, (width - LABEL_WIDTH - END_WIDTH) / longest, width), more(listed.length), legend());
  }

  function more(listed) {
    const said = listed < runs.all.length ? `The last ${listed} of ${runs.all.length} runs, the newest first.` : null;
    const offer = shown === FEW ? "Show more" : "Show fewer";
    const attributes = { type: "button", class: "plain", on: { click: change } };
    const button = runs.all.length > FEW && el("button", attributes, offer);
    return (said || button) && el("p", { class: "quiet small-text" }, said, " ", button);
  }

  function change() {
    shown = shown === FEW ? MANY : FEW;
    draw();
    place.querySelector("button").focus();
  }

  const watch = new ResizeObserver(([entry]) => {
    width = Math.floor(entry.contentRect.width);
    draw();
  });
  watch.observe(place);
  const timer = setInterval(draw, TICK_MS);
  signal.addEventListener("abort", () => { watch.disconnect(); clearInterval(timer); });
  return { node: place, draw };
}

function list(runs, scale, width) {
  const pictures = runs.map((run) => el("li", {}, picture(run, scale, width)));
  return el("ol", { reversed: true, "aria-label": "Runs, the newest first" }, pictures);
}

function picture(run, scale, width) {
  const told = sentence(run);
  const middle = HEIGHT / 2;
  const at = (moment) => LABEL_WIDTH + (moment - run.from) * scale;
  const until = run.until ?? Math.max(Date.now(), run.from);
  const end = Math.max(at(until), LABEL_WIDTH + LEAST_WIDTH);
  return svg(
    "svg",
    { role: "img", "aria-label": told, width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}` },
    svg("title", {}, told),
    svg("text", { x: 0, y: middle + 4, class: "label" }, `#${run.number}`),
    run.parts.map((part) => bar(part, at, until)),
    run.steered.map((moment) => steered(at(moment), moment)),
    endSign(run.state, end + 11, middle),
    svg("text", { x: end + 23, y: middle + 4, class: "label" }, span(lasted(run))),
  );
}

function bar(part, at, until) {
  const from = at(part.from);
  const isRunning = part.state === "running";
  const width = Math.max(at(part.until ?? until) - from, isRunning ? LEAST_WIDTH : 0);
  const height = isRunning ? 12 : 6;
  return svg("rect", { class: part.state, x: from, y: (HEIGHT - height) / 2, width, height, rx: 1.5 });
}

function steered(x, moment) {
  return svg("path", { class: "steered", d: `M${x} 10 l5 -8 h-10 z` }, svg("title", {}, `Steered ${exact(moment)}`));
}

function endSign(state, x, y) {
  const shapes = {
    queued: () => svg("circle", { cx: x, cy: y, r: 4, class: "sign hollow" }),
    running: () => svg("circle", { cx: x, cy: y, r: 4.5, class: "sign full run" }),
    succeeded: () => svg("path", { d: `M${x - 5} ${y} l4 4 l7 -8`, class: "sign line good" }),
    failed: () => svg("path", { d: `M${x - 4} ${y - 4} l8 8 m0 -8 l-8 8`, class: "sign line bad" }),
    cancelled: () => svg("rect", { x: x - 4, y: y - 4, width: 8, height: 8, class: "sign full warn" }),
  };
  return shapes[state]();
}

function legend() {
  const parts = [
    ["waiting", svg("rect", { class: "queued", x: 1, y: 7, width: 18, height: 6 })],
    ["at work", svg("rect", { class: "running", x: 1, y: 4, width: 18, height: 12, rx: 1.5 })],
    ["steered", svg("path", { class: "steered", d: "M10 14 l5 -8 h-10 z" })],
    ["succeeded", endSign("succeeded", 10, 10)],
    ["failed", endSign("failed", 10, 10)],
    ["cancelled", endSign("cancelled", 10, 10)],
  ];
  const sign = (shape) => svg("svg", { width: 20, height: 20, "aria-hidden": "true" }, shape);
  return el("p", { class: "legend" }, parts.map(([name, shape]) => el("span", {}, sign(shape), name)));
}

/** What the bar shows, said. */
export function sentence(run) {
  const times = { queued: 0, running: 0 };
  for (const part of run.parts) times[part.state] += (part.until ?? Date.now()) - part.from;
  const steers = run.steered.length > 0 ? `, steered ${count(run.steered.length, "time")}` : "";
  const state = run.until === null ? `${run.state} now` : run.state;
  const worked = `waited ${span(times.queued)}, worked ${span(times.running)}`;
  return `Run ${run.number}, ${exact(run.from)}: ${worked}${steers}, ${state}.`;
}

function lasted(run) {
  return Math.max((run.until ?? Date.now()) - run.from, 0);
}
