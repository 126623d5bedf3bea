// Tokens and cost of the workspace: a chart by day, and a table by model, session or key.

import { get } from "../api.js";
import { chartCard } from "../charts/chart_card.js";
import { timeChart } from "../charts/time_chart.js";
import { el, fill, uniqueId } from "../dom.js";
import { objectNames } from "../names.js";
import { errorBox, loading } from "../notices.js";
import { segments } from "../segments.js";
import { sessionTitle } from "../session/session_menu.js";
import { table } from "../tables.js";
import { visibleName } from "../visible_text.js";
import { formatCost } from "./usage_text.js";

const DAY_MS = 86_400_000;
const RANGES = [[7, "7 days"], [30, "30 days"], [90, "90 days"]];
const MEASURES = [["cost", "Cost"], ["tokens", "Tokens"]];
const GROUPS = [["model", "Model"], ["session", "Session"], ["api_key", "Key"]];
const MAX_ROWS = 20;
const DAY = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short", timeZone: "UTC" });
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
// Larger numbers do not fit into the boxes of the totals.
const MAX_FULL = 99_999;

/** Returns `{node, refresh(), asTable(isShown)}`. Days are those of UTC. */
export function usageSection(signal) {
  const headingId = uniqueId("usage");
  const range = segments("Days", RANGES, 30, refresh);
  const measure = segments("Measure", MEASURES, "cost", () => { isMeasureChosen = true; draw(); });
  const group = segments("Group by", GROUPS, "model", refresh);
  const totals = el("dl", { class: "figures" });
  const chart = dayChart(signal, () => measure.value());
  const tableContainer = el("div", {}, loading("usage"));
  const errorContainer = el("div", {});
  const names = {
    session: objectNames((id) => `/sessions/${id}`, sessionTitle, signal),
    api_key: objectNames((id) => `/api-keys/${id}`, (key) => visibleName(key.label), signal),
  };
  let days = null;
  let isMeasureChosen = false;
  let lastRequest = 0;

  async function refresh() {
    lastRequest += 1;
    const request = lastRequest;
    const { from, to } = period(Number(range.value()));
    try {
      const [byDay, byGroup] = await Promise.all(["day", group.value()].map((name) => get("/usage", { group_by: name, from, to }, signal)));
      if (request !== lastRequest) return;
      fill(errorContainer);
      days = everyDay(byDay.items, Number(range.value()));
      draw();
      drawTable(byGroup.items);
    } catch (error) {
      if (signal.aborted || request !== lastRequest) return;
      tableContainer.querySelector("[role=status]")?.remove();
      fill(errorContainer, errorBox(error, refresh));
    }
  }

  function draw() {
    if (days === null) return;
    const used = days.filter((day) => day.input_tokens + day.output_tokens > 0);
    const isPriceKnown = used.length === 0 || used.some((day) => day.cost_usd !== null);
    if (!isMeasureChosen) measure.select(isPriceKnown ? "cost" : "tokens");
    chart.node.hidden = totals.hidden = used.length === 0;
    const sum = (key) => days.reduce((total, day) => total + (day[key] ?? 0), 0);
    const pairs = [
      ["Cost", isPriceKnown ? formatCost(sum("cost_usd")) : "Unknown price"],
      ["Input tokens", bigNumber(sum("input_tokens"))],
      ["Cached", bigNumber(sum("cached_tokens"))],
      ["Written to caches", bigNumber(sum("cache_write_tokens"))],
      ["Output tokens", bigNumber(sum("output_tokens"))],
    ];
    fill(totals, pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
    chart.show(days);
  }

  function drawTable(items) {
    const kind = group.value();
    const label = GROUPS.find(([value]) => value === kind)[1];
    if (items.length === 0) return fill(tableContainer, el("p", { class: "muted" }, "No usage in this time range."));
    const columns = [{ name: label, cell: (item) => groupName(kind, item.group, names) }, ...COLUMNS];
    const rest = items.length > MAX_ROWS && el("p", { class: "muted small-text" }, `The ${MAX_ROWS} most expensive of ${items.length}. The API lists all.`);
    return fill(tableContainer, table(`Usage by ${label.toLowerCase()}`, columns, items.slice(0, MAX_ROWS)), rest);
  }

  const node = el(
    "section",
    { class: "usage", "aria-labelledby": headingId },
    el("div", { class: "section-head" }, el("h2", { id: headingId }, "Usage"), range.node, measure.node),
    errorContainer,
    totals,
    el("div", { class: "charts" }, chart.node),
    el("div", { class: "section-head" }, el("h3", {}, "Breakdown"), group.node),
    tableContainer,
    el("p", { class: "muted small-text" }, "Days are in UTC. Tokens of models with an unknown price have no cost."),
  );
  return { node, refresh, asTable: chart.asTable };
}

const number = (name, key) => ({ name, class: "number", cell: (item) => item[key].toLocaleString("en") });
const COLUMNS = [
  number("Runs", "runs"),
  number("Input tokens", "input_tokens"),
  number("Cached", "cached_tokens"),
  number("Cache writes", "cache_write_tokens"),
  number("Output tokens", "output_tokens"),
  { name: "Cost", class: "number", cell: cost },
];

function bigNumber(value) {
  const full = value.toLocaleString("en");
  return value > MAX_FULL ? el("span", { title: full }, COMPACT.format(value)) : full;
}

function cost({ cost_usd: usd }) {
  return usd === null ? el("span", { class: "muted" }, "Unknown price") : formatCost(usd);
}

function dayChart(signal, measure) {
  const tokens = (day) => day.input_tokens + day.output_tokens;
  const value = (day) => (measure() === "cost" ? day.cost_usd ?? 0 : tokens(day));
  const format = (amount) => (measure() === "cost" ? formatCost(amount) : COMPACT.format(amount));
  return chartCard({
    title: "Usage by day",
    signal,
    draw: (days, width) => timeChart({
      points: days.map((day) => ({
        at: Date.parse(day.group),
        values: [value(day)],
        tooltip: `${DAY.format(Date.parse(day.group))}\n${day.cost_usd === null ? "" : `${formatCost(day.cost_usd)}, `}${tokens(day).toLocaleString("en")} tokens`,
      })),
      stepMs: DAY_MS,
      series: ["series-1"],
      kind: "columns",
      format,
      isInteger: measure() === "tokens",
      label: `At most ${format(Math.max(...days.map(value)))}${measure() === "cost" ? "" : " tokens"} in a day`,
      width,
    }),
    columns: [{ name: "Day", cell: (day) => DAY.format(Date.parse(day.group)) }, ...COLUMNS],
    rows: (days) => days.filter((day) => day.runs > 0).toReversed(),
  });
}

/** `from` is included, `to` is not. */
function period(count) {
  const today = Math.floor(Date.now() / DAY_MS) * DAY_MS;
  return { from: isoDay(today - (count - 1) * DAY_MS), to: isoDay(today + DAY_MS) };
}

function isoDay(ms) {
  return new Date(ms).toISOString().slice(0, 10);
}

/** The last `count` days in order, also those without usage. */
function everyDay(items, count) {
  const found = new Map(items.map((item) => [item.group, item]));
  const first = Date.parse(period(count).from);
  return Array.from({ length: count }, (_, index) => {
    const day = isoDay(first + index * DAY_MS);
    return found.get(day) ?? {
      group: day, runs: 0, input_tokens: 0, cached_tokens: 0, cache_write_tokens: 0, output_tokens: 0, cost_usd: 0,
    };
  });
}

function groupName(kind, id, names) {
  if (id === null) return el("span", { class: "muted" }, "Unknown");
  if (kind === "model") return el("code", {}, visibleName(id));
  const path = kind === "session" ? `#/sessions/${id}` : "#/keys";
  const link = el("a", { href: path }, id.slice(0, 8));
  names[kind](id, (name) => fill(link, name));
  return link;
}
