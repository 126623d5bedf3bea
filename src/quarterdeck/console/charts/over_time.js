// Figures over time: columns, or lines with points. Pointing at a moment tells its figures.

import { svg } from "../dom.js";
import { linear, timeMarks, valueMarks } from "./scales.js";

const HEIGHT = 220;
const TOP = 12;
const BOTTOM = 28;
const RIGHT = 10;
const MARK_WIDTH = 76;
const CHARACTER = 7;

/**
 * `points`: `[{at, values, told}]`, moments that are `stepMs` apart, the start of each; a value is null where there is
 * none. `series`: the class of each value. `words(value)` writes one on the axis.
 */
export function overTime({ points, stepMs, series, kind, words, isWhole = false, label, width }) {
  const since = points[0].at;
  const until = points.at(-1).at + stepMs;
  const highest = Math.max(0, ...points.flatMap((point) => point.values.filter((value) => value !== null)));
  const marks = valueMarks(highest, 4, isWhole);
  const left = 10 + CHARACTER * Math.max(...marks.map((mark) => words(mark).length));
  const x = linear(since, until, left, width - RIGHT);
  const y = linear(0, marks.at(-1), HEIGHT - BOTTOM, TOP);
  const times = timeMarks(since, until, Math.max(2, Math.floor((width - left) / MARK_WIDTH)));
  const drawn = kind === "columns" ? columns(points, series[0], x, y, stepMs) : series.map((name, at) => line(points, at, name, x, y, stepMs));
  const nodes = [
    marks.map((mark) => svg("line", { class: "grid", x1: left, x2: width - RIGHT, y1: y(mark), y2: y(mark) })),
    marks.map((mark) => svg("text", { x: left - 7, y: y(mark) + 4, "text-anchor": "end" }, words(mark))),
    times.map(([at, text]) => timeMark(x(at), text, left, width)),
    drawn,
    points.map((point) => pointedAt(point, x, stepMs)),
  ];
  return { height: HEIGHT, label, nodes };
}

function timeMark(at, text, left, width) {
  const half = (text.length * CHARACTER) / 2;
  // A word that would stand over the edge is moved in.
  const middle = Math.min(Math.max(at, left + half - 10), width - half);
  return [
    svg("line", { class: "axis", x1: at, x2: at, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 5 }),
    svg("text", { x: middle, y: HEIGHT - 7, "text-anchor": "middle" }, text),
  ];
}

function columns(points, name, x, y, stepMs) {
  const wide = Math.max(1, (x(stepMs) - x(0)) * 0.76);
  const gap = (x(stepMs) - x(0) - wide) / 2;
  return points
    .filter(({ values }) => values[0] > 0)
    .map(({ at, values }) => svg("rect", { class: name, x: x(at) + gap, width: wide, y: y(values[0]), height: y(0) - y(values[0]), rx: Math.min(2, wide / 2) }));
}

/** Interrupted where there is no figure: a line across would claim one. */
function line(points, which, name, x, y, stepMs) {
  const known = points.map(({ at, values }) => (values[which] === null ? null : [x(at + stepMs / 2), y(values[which])]));
  const path = known.map((place, at) => (place === null ? "" : `${known[at - 1] ? "L" : "M"}${place[0].toFixed(1)} ${place[1].toFixed(1)}`)).join("");
  return [
    svg("path", { class: `line ${name}`, d: path }),
    known.filter(Boolean).map(([cx, cy]) => svg("circle", { class: name, cx, cy, r: 2.6 })),
  ];
}

function pointedAt({ at, told }, x, stepMs) {
  return svg("rect", { class: "pointed", x: x(at), width: x(stepMs) - x(0), y: TOP, height: HEIGHT - BOTTOM - TOP }, svg("title", {}, told));
}
