// Values over time as columns or lines, with a tooltip for each point.

import { svg } from "../dom.js";
import { linearScale, timeTicks, valueTicks } from "./scales.js";

const HEIGHT = 220;
const TOP = 12;
const BOTTOM = 28;
const RIGHT = 10;
const TICK_WIDTH = 76;
const CHARACTER_WIDTH = 7;

/**
 * `points`: `[{at, values, tooltip}]`, `stepMs` apart; a value is null if there is no data. `series`: the CSS class of
 * each value. `format(value)` labels the axis.
 */
export function timeChart({ points, stepMs, series, kind, format, isInteger = false, label, width }) {
  const since = points[0].at;
  const until = points.at(-1).at + stepMs;
  const max = Math.max(0, ...points.flatMap((point) => point.values.filter((value) => value !== null)));
  const ticks = valueTicks(max, 4, isInteger);
  const left = 10 + CHARACTER_WIDTH * Math.max(...ticks.map((tick) => format(tick).length));
  const x = linearScale(since, until, left, width - RIGHT);
  const y = linearScale(0, ticks.at(-1), HEIGHT - BOTTOM, TOP);
  const times = timeTicks(since, until, Math.max(2, Math.floor((width - left) / TICK_WIDTH)));
  const nodes = [
    ticks.map((tick) => svg("line", { class: "grid", x1: left, x2: width - RIGHT, y1: y(tick), y2: y(tick) })),
    ticks.map((tick) => svg("text", { x: left - 7, y: y(tick) + 4, "text-anchor": "end" }, format(tick))),
    times.map(([at, text]) => timeTick(x(at), text, left, width)),
    kind === "columns" ? columns(points, series[0], x, y, stepMs) : series.map((name, index) => line(points, index, name, x, y, stepMs)),
    points.map((point) => tooltipArea(point, x, stepMs)),
  ];
  return { height: HEIGHT, label, nodes };
}

function timeTick(at, text, left, width) {
  const halfWidth = (text.length * CHARACTER_WIDTH) / 2;
  // Keep labels at the edges inside the chart.
  const middle = Math.min(Math.max(at, left + halfWidth - 10), width - halfWidth);
  return [
    svg("line", { class: "axis", x1: at, x2: at, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 5 }),
    svg("text", { x: middle, y: HEIGHT - 7, "text-anchor": "middle" }, text),
  ];
}

function columns(points, name, x, y, stepMs) {
  const width = Math.max(1, (x(stepMs) - x(0)) * 0.76);
  const gap = (x(stepMs) - x(0) - width) / 2;
  return points
    .filter(({ values }) => values[0] > 0)
    .map(({ at, values }) => svg("rect", { class: name, x: x(at) + gap, width, y: y(values[0]), height: y(0) - y(values[0]), rx: Math.min(2, width / 2) }));
}

/** The line has gaps where there is no data. */
function line(points, index, name, x, y, stepMs) {
  const centres = points.map(({ at, values }) => (values[index] === null ? null : [x(at + stepMs / 2), y(values[index])]));
  const path = centres.map((centre, at) => (centre === null ? "" : `${centres[at - 1] ? "L" : "M"}${centre[0].toFixed(1)} ${centre[1].toFixed(1)}`)).join("");
  return [
    svg("path", { class: `line ${name}`, d: path }),
    centres.filter(Boolean).map(([cx, cy]) => svg("circle", { class: name, cx, cy, r: 2.6 })),
  ];
}

function tooltipArea({ at, tooltip }, x, stepMs) {
  return svg("rect", { class: "tooltip-area", x: x(at), width: x(stepMs) - x(0), y: TOP, height: HEIGHT - BOTTOM - TOP }, svg("title", {}, tooltip));
}
