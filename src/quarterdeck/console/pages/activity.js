// Runs by state, inputs per minute and time to start over a time range, and usage by day.

import { get } from "../api.js";
import { barChart } from "../charts/bar_chart.js";
import { chartCard } from "../charts/chart_card.js";
import { timeChart } from "../charts/time_chart.js";
import { can } from "../credential.js";
import { el, fill, uniqueId } from "../dom.js";
import { runStateName } from "../format.js";
import { emptyState, errorBox, loading, missingPermission } from "../notices.js";
import { replaceQuery } from "../router.js";
import { segments } from "../segments.js";
import { formatDateTime, formatDuration, relativeTime } from "../time_format.js";
import { usageSection } from "../usage/usage_section.js";

const RANGES = [
  [60, "1 hour"],
  [360, "6 hours"],
  [1440, "24 hours"],
  [10080, "7 days"],
];
const REFRESH_MS = 15_000;
// Usage is shown by day.
const USAGE_REFRESH_MS = 60_000;

export async function show(view) {
  if (!can("workspace.read")) {
    fill(view.main, view.title("Activity"), missingPermission("activity", "workspace.read"));
    return;
  }
  const { signal } = view;
  let minutes = RANGES.find(([value]) => String(value) === view.query.get("minutes"))?.[0] ?? RANGES[0][0];
  const range = segments("Time range", RANGES, minutes, () => { minutes = Number(range.value()); replaceQuery({ minutes }); refresh(); });
  let lastRequest = 0;
  const charts = [runsByState(signal), inputsPerMinute(signal), timeToStart(signal)];
  const usage = usageSection(signal);
  const chartsNode = el("div", { class: "charts" }, charts.map((one) => one.node));
  const totalsNode = el("dl", { class: "figures" });
  const emptyNode = el("div", {});
  const errorContainer = el("div", {});
  const updated = el("p", { class: "muted small-text" });
  const asTables = el("input", { type: "checkbox", role: "switch", id: uniqueId("tables"), on: { change: toggleTables } });
  const content = el("div", {}, loading("activity"));
  fill(
    view.main,
    view.title("Activity"),
    el(
      "div",
      { class: "toolbar activity-choice" },
      range.node,
      el("div", { class: "choice" }, asTables, el("label", { for: asTables.id }, "Show as tables")),
    ),
    errorContainer,
    content,
    usage.node,
  );

  function toggleTables() {
    for (const chart of [...charts, usage]) chart.asTable(asTables.checked);
  }

  async function refresh() {
    lastRequest += 1;
    const request = lastRequest;
    try {
      const data = await get("/activity", { minutes }, signal);
      if (request !== lastRequest) return;
      fill(errorContainer);
      draw(data);
    } catch (error) {
      if (signal.aborted || request !== lastRequest) return;
      // Keep the old charts, if there are any.
      if (!content.contains(chartsNode)) fill(content);
      fill(errorContainer, errorBox(error, refresh));
    }
  }

  function draw(data) {
    if (!content.contains(chartsNode)) fill(content, totalsNode, emptyNode, chartsNode, updated);
    const isEmpty = Object.values(data.runs_by_state).every((count) => count === 0) && data.inputs.every(({ count }) => count === 0);
    chartsNode.hidden = totalsNode.hidden = isEmpty;
    if (isEmpty !== emptyNode.hasChildNodes()) fill(emptyNode, isEmpty && noActivity());
    for (const chart of charts) chart.show(data);
    fill(totalsNode, totals(data));
    fill(updated, `Since ${formatDateTime(data.since)}, as of `, relativeTime(data.until), ". Updates automatically.");
  }

  // A hidden tab is not refreshed; it is refreshed when the user returns to it.
  for (const [act, ms] of /** @type {[() => void, number][]} */ ([[refresh, REFRESH_MS], [usage.refresh, USAGE_REFRESH_MS]])) {
    const actIfVisible = () => { if (!document.hidden) act(); };
    const timer = setInterval(actIfVisible, ms);
    signal.addEventListener("abort", () => clearInterval(timer), { once: true });
    document.addEventListener("visibilitychange", actIfVisible, { signal });
    act();
  }
}

function noActivity() {
  return emptyState(
    "No activity",
    el("p", {}, "There were no runs or inputs in this time range."),
    el("p", {}, el("a", { href: "#/sessions" }, "Go to sessions")),
  );
}

function totals({ runs_by_state: runs, inputs }) {
  const ended = runs.succeeded + runs.failed + runs.cancelled;
  const pairs = [
    ["Runs", Object.values(runs).reduce((sum, count) => sum + count, 0).toLocaleString()],
    ["Active now", (runs.queued + runs.running + runs.waiting).toLocaleString()],
    ["Waiting", runs.waiting.toLocaleString()],
    ["Inputs", inputs.reduce((sum, { count }) => sum + count, 0).toLocaleString()],
    ["Failed", ended === 0 ? "–" : `${Math.round((100 * runs.failed) / ended)}%`],
  ];
  return pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)));
}

function runsByState(signal) {
  const items = ({ runs_by_state: runs }) => Object.entries(runs).map(([state, value]) => ({ name: runStateName(state), value, series: `is-${state}` }));
  return chartCard({
    title: "Runs by state",
    signal,
    draw: (data, width) => barChart({ items: items(data), unit: "runs", width, label: Object.entries(data.runs_by_state).map(([state, count]) => `${count} ${runStateName(state).toLowerCase()}`).join(", ") }),
    columns: [{ name: "State", cell: ({ name }) => name }, { name: "Runs", class: "number", cell: ({ value }) => String(value) }],
    rows: items,
  });
}

function inputsPerMinute(signal) {
  const rate = ({ count }, data) => (count * 60) / data.bucket_seconds;
  return chartCard({
    title: "Inputs per minute",
    signal,
    draw: (data, width) => timeChart({
      points: data.inputs.map((one) => ({ at: Date.parse(one.at), values: [rate(one, data)], tooltip: `${formatDateTime(one.at)}\n${one.count} inputs, ${formatRate(rate(one, data))} per minute` })),
      stepMs: data.bucket_seconds * 1000,
      series: ["series-1"],
      kind: "columns",
      format: formatRate,
      label: `At most ${formatRate(Math.max(...data.inputs.map((one) => rate(one, data))))} inputs per minute`,
      width,
    }),
    columns: [
      { name: "From", cell: (one) => formatDateTime(one.at) },
      { name: "Inputs", class: "number", cell: (one) => String(one.count) },
      { name: "Per minute", class: "number", cell: (one) => formatRate(one.rate) },
    ],
    rows: (data) => data.inputs.map((one) => ({ ...one, rate: rate(one, data) })).toReversed(),
  });
}

function timeToStart(signal) {
  const format = (ms) => (ms === null ? "–" : formatDuration(ms));
  return chartCard({
    title: "Time to start",
    unit: "from input to worker",
    legend: [["p50", "series-1"], ["p95", "series-2"]],
    signal,
    draw: (data, width) => timeChart({
      points: data.time_to_start.map((one) => ({
        at: Date.parse(one.at),
        values: [one.p50_ms, one.p95_ms],
        tooltip: `${formatDateTime(one.at)}\n${one.runs} runs, p50 ${format(one.p50_ms)}, p95 ${format(one.p95_ms)}`,
      })),
      stepMs: data.bucket_seconds * 1000,
      series: ["series-1", "series-2"],
      kind: "lines",
      format: (ms) => (ms === 0 ? "0" : formatDuration(ms)),
      isInteger: true,
      label: `Highest p95: ${format(Math.max(0, ...data.time_to_start.map((one) => one.p95_ms ?? 0)))}`,
      width,
    }),
    columns: [
      { name: "From", cell: (one) => formatDateTime(one.at) },
      { name: "Runs", class: "number", cell: (one) => String(one.runs) },
      { name: "p50", class: "number", cell: (one) => format(one.p50_ms) },
      { name: "p95", class: "number", cell: (one) => format(one.p95_ms) },
    ],
    rows: (data) => data.time_to_start.toReversed(),
  });
}

function formatRate(number) {
  return number >= 10 ? String(Math.round(number)) : String(Number(number.toFixed(2)));
}
