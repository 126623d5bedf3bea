// One figure for each of a few things, as bars that lie.

import { svg } from "../dom.js";
import { linear } from "./scales.js";

const ROW = 34;
const THICK = 16;
const NAMES = 92;
const FIGURES = 56;

/** `items`: `[{name, value, series}]`. */
export function bars({ items, unit, label, width }) {
  const highest = Math.max(1, ...items.map((item) => item.value));
  const length = linear(0, highest, 0, Math.max(20, width - NAMES - FIGURES));
  const nodes = items.map(({ name, value, series }, at) => {
    const middle = at * ROW + ROW / 2;
    return svg(
      "g",
      {},
      svg("title", {}, `${name}: ${value} ${unit}`),
      svg("text", { x: 0, y: middle + 4 }, name),
      svg("rect", { class: "track", x: NAMES, y: middle - THICK / 2, width: length(highest), height: THICK, rx: 4 }),
      value > 0 && svg("rect", { class: series, x: NAMES, y: middle - THICK / 2, width: Math.max(3, length(value)), height: THICK, rx: 4 }),
      svg("text", { class: "figure", x: NAMES + length(highest) + 10, y: middle + 4 }, value.toLocaleString()),
    );
  });
  return { height: items.length * ROW, label, nodes };
}
