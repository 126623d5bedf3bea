// Runs, failures, cost and duration of the versions of an agent.

import { get } from "../api.js";
import { el, fill, svg } from "../dom.js";
import { emptyState, errorBox, loading } from "../notices.js";
import { segments } from "../segments.js";
import { table } from "../tables.js";
import { formatDuration } from "../time_format.js";
import { formatCost } from "../usage/usage_text.js";

const DAY_MS = 86_400_000;
const RANGES = [[7, "7 days"], [30, "30 days"], [90, "90 days"]];
const BAR_WIDTH = 160;
const BAR_HEIGHT = 10;

/** Returns the node. `path`: of the agent. Days are those of UTC. */
export function agentStats(path, signal) {
  const content = el("div", {}, loading("statistics"));
  const range = segments("Days", RANGES, 30, load);
  let lastRequest = 0;

  async function load() {
    lastRequest += 1;
    const request = lastRequest;
    try {
      const { versions } = await get(`${path}/stats`, period(Number(range.value())), signal);
      if (request === lastRequest) fill(content, versions.length === 0 ? noRuns() : table("Statistics by version", columns(versions), versions));
    } catch (error) {
      if (!signal.aborted && request === lastRequest) fill(content, errorBox(error, load));
    }
  }

  load();
  return el("section", { class: "agent-stats" }, el("div", { class: "section-head" }, el("h2", {}, "Statistics"), range.node), content);
}

function columns(versions) {
  const most = Math.max(...versions.map(({ runs }) => runs));
  return [
    { name: "Version", class: "short", cell: ({ version }) => `Version ${version}` },
    { name: "Runs", cell: (one) => el("span", { class: "runs-bar" }, runsBar(one, most), one.runs.toLocaleString("en")) },
    { name: "Failed", class: "number", cell: failures },
    { name: "Duration (p50)", class: "number", cell: ({ p50_seconds: seconds }) => duration(seconds) },
    { name: "Duration (p95)", class: "number", cell: ({ p95_seconds: seconds }) => duration(seconds) },
    { name: "Cost", class: "number", cell: ({ cost_usd: cost }) => money(cost) },
    { name: "Cost per run", class: "number", cell: ({ cost_usd: cost, runs }) => money(cost === null || runs === 0 ? null : cost / runs) },
  ];
}

/** The failed runs are at the end of the bar. The figures are next to it, so screen readers do not need it. */
function runsBar({ runs, failures: failed }, most) {
  const width = (count) => (BAR_WIDTH * count) / Math.max(1, most);
  const part = (name, x, count) => count > 0 && svg("rect", { class: name, x, y: 0, width: Math.max(2, width(count)), height: BAR_HEIGHT });
  return svg(
    "svg",
    { "aria-hidden": "true", viewBox: `0 0 ${BAR_WIDTH} ${BAR_HEIGHT}`, width: BAR_WIDTH, height: BAR_HEIGHT },
    part("runs-good", 0, runs - failed),
    part("runs-failed", width(runs - failed), failed),
  );
}

function failures({ runs, failures: failed }) {
  if (failed === 0) return "0";
  return `${failed.toLocaleString("en")} (${((100 * failed) / runs).toFixed(failed / runs < 0.1 ? 1 : 0)}%)`;
}

function duration(seconds) {
  return seconds === null ? unknown() : formatDuration(seconds * 1000);
}

function money(usd) {
  return usd === null ? unknown() : formatCost(usd);
}

function unknown() {
  return el("span", { class: "muted" }, "–");
}

function noRuns() {
  return emptyState("No runs in this time", el("p", {}, "Runs of sessions with this agent are counted here."));
}

function period(days) {
  const day = (time) => new Date(time).toISOString().slice(0, 10);
  const tomorrow = Date.now() + DAY_MS;
  return { from: day(tomorrow - days * DAY_MS), to: day(tomorrow) };
}
