// A card with a heading, a responsive chart, and the same data as a table.

import { el, fill, svg, uniqueId } from "../dom.js";
import { table } from "../tables.js";

/**
 * `draw(data, width)` returns `{height, label, nodes}`; `columns` and `rows(data)` define the table. Returns
 * `{node, show(data), asTable(isShown)}`. The table is always available to screen readers.
 */
export function chartCard({ title, unit = null, legend = [], draw, columns, rows, signal }) {
  const headingId = uniqueId("chart");
  const picture = el("div", { class: "chart-picture" });
  const legendNode = legend.length > 0 && legendList(legend);
  const tableContainer = el("div", { class: "visually-hidden", role: "group", "aria-label": `${title}, as a table` });
  const node = el(
    "section",
    { class: "card chart", "aria-labelledby": headingId },
    el("div", { class: "chart-head" }, el("h2", { id: headingId }, title), unit && el("span", { class: "muted small-text" }, unit)),
    picture,
    legendNode,
    tableContainer,
  );
  let data = null;
  let width = 0;

  function redraw() {
    if (data === null || width === 0) return;
    const { height, label, nodes } = draw(data, width);
    fill(picture, svg("svg", { role: "img", "aria-label": label, width, height, viewBox: `0 0 ${width} ${height}` }, nodes));
  }

  const observer = new ResizeObserver(([entry]) => {
    const newWidth = Math.floor(entry.contentRect.width);
    if (newWidth === width) return;
    width = newWidth;
    redraw();
  });
  observer.observe(picture);
  signal.addEventListener("abort", () => observer.disconnect(), { once: true });

  return {
    node,
    show(newData) {
      data = newData;
      redraw();
      fill(tableContainer, table(title, columns, rows(newData)));
    },
    asTable(isShown) {
      tableContainer.className = isShown ? "chart-table" : "visually-hidden";
      // The table scrolls, so it must be reachable by keyboard.
      tableContainer.tabIndex = isShown ? 0 : -1;
      picture.hidden = isShown;
      if (legendNode) legendNode.hidden = isShown;
    },
  };
}

function legendList(legend) {
  return el("ul", { class: "legend" }, legend.map(([name, series]) => el("li", {}, el("span", { class: `swatch ${series}`, "aria-hidden": "true" }), name)));
}
