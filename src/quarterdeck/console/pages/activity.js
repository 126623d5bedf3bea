// What went on lately: runs by state, inputs a minute, and how long runs waited for a worker.

import { get } from "../api.js";
import { bars } from "../charts/bars.js";
import { chart } from "../charts/chart.js";
import { overTime } from "../charts/over_time.js";
import { can } from "../credential.js";
import { el, fill, freshId } from "../dom.js";
import { emptyBox, faultBox, lackingBox, loading } from "../notices.js";
import { keepQuery } from "../router.js";
import { exact, span, when } from "../times.js";

const WINDOWS = [
  [60, "1 hour"],
  [360, "6 hours"],
  [1440, "24 hours"],
  [10080, "7 days"],
];
const REFRESH_MS = 15_000;
const STATES = ["queued", "running", "succeeded", "failed", "cancelled"];

export async function show(view) {
  if (!can("workspace.read")) {
    fill(view.main, view.title("Activity"), lackingBox("activity", "workspace.read"));
    return;
  }
  const { signal } = view;
  let minutes = WINDOWS.find(([value]) => String(value) === view.query.get("minutes"))?.[0] ?? WINDOWS[0][0];
  let asked = 0;
  const charts = [runsByState(signal), inputsAMinute(signal), timeToStart(signal)];
  const drawn = el("div", { class: "charts" }, charts.map((one) => one.node));
  const figures = el("dl", { class: "figures" });
  const nothing = el("div", {});
  const fault = el("div", {});
  const updated = el("p", { class: "quiet small-text" });
  const asTables = el("input", { type: "checkbox", role: "switch", id: freshId("tables"), on: { change: turn } });
  const content = el("div", {}, loading("activity"));
  fill(
    view.main,
    view.title("Activity"),
    el(
      "div",
      { class: "toolbar activity-choice" },
      windowChoice(minutes, (chosen) => { minutes = chosen; keepQuery({ minutes }); refresh(); }),
      el("div", { class: "choice" }, asTables, el("label", { for: asTables.id }, "Show as tables")),
    ),
    fault,
    content,
  );

  function turn() {
    for (const one of charts) one.asTable(asTables.checked);
  }

  async function refresh() {
    asked += 1;
    const mine = asked;
    try {
      const found = await get("/activity", { minutes }, signal);
      if (mine !== asked) return;
      fill(fault);
      showFound(found);
    } catch (reason) {
      if (signal.aborted || mine !== asked) return;
      // What was shown is old but true; it stays.
      if (!content.contains(drawn)) fill(content);
      fill(fault, faultBox(reason, refresh));
    }
  }

  function showFound(found) {
    if (!content.contains(drawn)) fill(content, figures, nothing, drawn, updated);
    const isEmpty = STATES.every((state) => found.runs_by_state[state] === 0) && found.inputs.every(({ count }) => count === 0);
    drawn.hidden = figures.hidden = isEmpty;
    if (isEmpty !== nothing.hasChildNodes()) fill(nothing, isEmpty && quietTime());
    for (const one of charts) one.show(found);
    fill(figures, totals(found));
    fill(updated, `Since ${exact(found.since)}, as of `, when(found.until), ". New figures come by themselves while this page is seen.");
  }

  // Nobody looks at a hidden tab, and who comes back to it wants to see how it is now.
  const refreshIfSeen = () => { if (!document.hidden) refresh(); };
  const timer = setInterval(refreshIfSeen, REFRESH_MS);
  signal.addEventListener("abort", () => clearInterval(timer), { once: true });
  document.addEventListener("visibilitychange", refreshIfSeen, { signal });
  refresh();
}

function windowChoice(chosen, choose) {
  const radios = WINDOWS.map(([value, words]) => {
    const radio = el("input", { type: "radio", name: "window", value: String(value), id: freshId("window"), checked: value === chosen, on: { change: () => choose(value) } });
    return [radio, el("label", { for: radio.id }, words)];
  });
  return el("fieldset", { class: "segments" }, el("legend", { class: "unseen" }, "The last"), radios);
}

function quietTime() {
  return emptyBox(
    "Nothing happened in this time",
    el("p", {}, "Send an input in a session, and its run is counted here. Or look at a longer time."),
    el("p", {}, el("a", { href: "#/sessions" }, "To the sessions")),
  );
}

function totals({ runs_by_state: runs, inputs }) {
  const ended = runs.succeeded + runs.failed + runs.cancelled;
  const pairs = [
    ["Runs", STATES.reduce((sum, state) => sum + runs[state], 0).toLocaleString()],
    ["Active now", (runs.queued + runs.running).toLocaleString()],
    ["Inputs", inputs.reduce((sum, { count }) => sum + count, 0).toLocaleString()],
    ["Failed", ended === 0 ? "–" : `${Math.round((100 * runs.failed) / ended)} %`],
  ];
  return pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)));
}

function runsByState(signal) {
  const items = ({ runs_by_state: runs }) => STATES.map((state) => ({ name: state, value: runs[state], series: `is-${state}` }));
  return chart({
    title: "Runs by state",
    unit: "runs",
    signal,
    draw: (data, width) => bars({ items: items(data), unit: "runs", width, label: items(data).map(({ name, value }) => `${value} ${name}`).join(", ") }),
    columns: [{ name: "State", cell: ({ name }) => name }, { name: "Runs", class: "number", cell: ({ value }) => String(value) }],
    rows: items,
  });
}

function inputsAMinute(signal) {
  const rate = ({ count }, data) => (count * 60) / data.bucket_seconds;
  return chart({
    title: "Inputs a minute",
    unit: "inputs / min",
    signal,
    draw: (data, width) => overTime({
      points: data.inputs.map((one) => ({ at: Date.parse(one.at), values: [rate(one, data)], told: `${exact(one.at)}\n${one.count} inputs, ${short(rate(one, data))} a minute` })),
      stepMs: data.bucket_seconds * 1000,
      series: ["series-1"],
      kind: "columns",
      words: short,
      label: `At most ${short(Math.max(...data.inputs.map((one) => rate(one, data))))} inputs a minute`,
      width,
    }),
    columns: [
      { name: "From", cell: (one) => exact(one.at) },
      { name: "Inputs", class: "number", cell: (one) => String(one.count) },
      { name: "A minute", class: "number", cell: (one) => short(one.rate) },
    ],
    rows: (data) => data.inputs.map((one) => ({ ...one, rate: rate(one, data) })).toReversed(),
  });
}

function timeToStart(signal) {
  const words = (ms) => (ms === null ? "–" : span(ms));
  return chart({
    title: "Time to start",
    unit: "from input to worker",
    legend: [["half of the runs", "series-1"], ["95 of 100", "series-2"]],
    signal,
    draw: (data, width) => overTime({
      points: data.time_to_start.map((one) => ({
        at: Date.parse(one.at),
        values: [one.p50_ms, one.p95_ms],
        told: `${exact(one.at)}\n${one.runs} runs; half within ${words(one.p50_ms)}, 95 of 100 within ${words(one.p95_ms)}`,
      })),
      stepMs: data.bucket_seconds * 1000,
      series: ["series-1", "series-2"],
      kind: "lines",
      words: (ms) => (ms === 0 ? "0" : span(ms)),
      isWhole: true,
      label: `95 of 100 runs started within ${words(Math.max(0, ...data.time_to_start.map((one) => one.p95_ms ?? 0)))} at the worst time`,
      width,
    }),
    columns: [
      { name: "From", cell: (one) => exact(one.at) },
      { name: "Runs", class: "number", cell: (one) => String(one.runs) },
      { name: "Half within", class: "number", cell: (one) => words(one.p50_ms) },
      { name: "95 of 100 within", class: "number", cell: (one) => words(one.p95_ms) },
    ],
    rows: (data) => data.time_to_start.toReversed(),
  });
}

function short(number) {
  return number >= 10 ? String(Math.round(number)) : String(Number(number.toFixed(2)));
}
