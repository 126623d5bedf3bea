// A picture with its words: a heading, a drawing as wide as there is room, and the same figures as a table.

import { el, fill, freshId, svg } from "../dom.js";
import { table } from "../tables.js";

/**
 * `draw(data, width)` gives the drawing, `{height, label, nodes}`; `rows(data)` and `columns` its table. Gives
 * `{node, show(data), asTable(isShown)}`. Screen readers have the table always, others when they ask for it.
 */
export function chart({ title, unit, legend = [], draw, columns, rows, signal }) {
  const heading = freshId("chart");
  const picture = el("div", { class: "chart-picture" });
  const caption = legend.length > 0 && key(legend);
  const figures = el("div", { class: "unseen", role: "group", "aria-label": `${title}, as a table` });
  const node = el(
    "section",
    { class: "card chart", "aria-labelledby": heading },
    el("div", { class: "chart-head" }, el("h2", { id: heading }, title), el("span", { class: "quiet small-text" }, unit)),
    picture,
    caption,
    figures,
  );
  let data = null;
  let width = 0;

  function redraw() {
    if (data === null || width === 0) return;
    const { height, label, nodes } = draw(data, width);
    fill(picture, svg("svg", { role: "img", "aria-label": label, width, height, viewBox: `0 0 ${width} ${height}` }, nodes));
  }

  const watcher = new ResizeObserver(([entry]) => {
    const found = Math.floor(entry.contentRect.width);
    if (found === width) return;
    width = found;
    redraw();
  });
  watcher.observe(picture);
  signal.addEventListener("abort", () => watcher.disconnect(), { once: true });

  return {
    node,
    show(found) {
      data = found;
      redraw();
      fill(figures, table(title, columns, rows(found)));
    },
    asTable(isShown) {
      figures.className = isShown ? "chart-table" : "unseen";
      // It scrolls, and must do so by keyboard.
      figures.tabIndex = isShown ? 0 : -1;
      picture.hidden = isShown;
      if (caption) caption.hidden = isShown;
    },
  };
}

function key(legend) {
  return el("ul", { class: "legend" }, legend.map(([name, series]) => el("li", {}, el("span", { class: `swatch ${series}`, "aria-hidden": "true" }), name)));
}
