// Horizontal bars: one value for each of a few items.

import { svg } from "../dom.js";
import { linearScale } from "./scales.js";

const ROW_HEIGHT = 34;
const BAR_HEIGHT = 16;
const NAME_WIDTH = 92;
const VALUE_WIDTH = 56;

/** `items`: `[{name, value, series}]`. */
export function barChart({ items, unit, label, width }) {
  const max = Math.max(1, ...items.map((item) => item.value));
  const length = linearScale(0, max, 0, Math.max(20, width - NAME_WIDTH - VALUE_WIDTH));
  const nodes = items.map(({ name, value, series }, index) => {
    const middle = index * ROW_HEIGHT + ROW_HEIGHT / 2;
    const bar = (cls, barWidth) => svg("rect", { class: cls, x: NAME_WIDTH, y: middle - BAR_HEIGHT / 2, width: barWidth, height: BAR_HEIGHT, rx: 4 });
    return svg(
      "g",
      {},
      svg("title", {}, `${name}: ${value} ${unit}`),
      svg("text", { x: 0, y: middle + 4 }, name),
      bar("track", length(max)),
      value > 0 && bar(series, Math.max(3, length(value))),
      svg("text", { class: "figure", x: NAME_WIDTH + length(max) + 10, y: middle + 4 }, value.toLocaleString()),
    );
  });
  return { height: items.length * ROW_HEIGHT, label, nodes };
}
