// Tables that become cards on a narrow screen, and lists that are longer than a page.

import { get } from "./api.js";
import { el, fill } from "./dom.js";
import { faultBox, loading } from "./notices.js";

/**
 * `columns`: `{name, cell(item), class?}`. The roles are said, because a table that is laid out otherwise loses its own.
 * A table with `row(item)` uses it to add attributes to rows.
 */
export function table(caption, columns, items, row = () => ({})) {
  const head = el("tr", { role: "row" }, columns.map((one) => el("th", { role: "columnheader", scope: "col", class: one.class }, one.name)));
  return el(
    "table",
    { role: "table" },
    el("caption", { class: "unseen" }, caption),
    el("thead", { role: "rowgroup" }, head),
    el("tbody", { role: "rowgroup" }, items.map((item) => tableRow(columns, item, row))),
  );
}

export function tableRow(columns, item, row = () => ({})) {
  const cells = columns.map((one) => el("td", { role: "cell", "data-label": one.name, class: one.class }, one.cell(item)));
  return el("tr", { role: "row", ...row(item) }, cells);
}

/** A table over a paged list: one page, and a button for the next. `empty` is shown when there is nothing. */
export function pagedTable({ caption, columns, path, query = {}, signal, empty, row }) {
  const place = el("div", {}, loading(caption.toLowerCase()));
  let body = null;
  let after = null;

  async function more() {
    const button = place.querySelector("button.more");
    if (button) button.disabled = true;
    try {
      const page = await get(path, { limit: 50, ...query, after }, signal);
      if (body === null && page.items.length === 0) return fill(place, empty());
      after = page.next_cursor;
      if (body === null) {
        const made = table(caption, columns, page.items, row);
        body = made.querySelector("tbody");
        fill(place, made);
      } else {
        body.append(...page.items.map((item) => tableRow(columns, item, row)));
      }
      button?.remove();
      if (after !== null) place.append(el("button", { class: "more", type: "button", on: { click: more } }, "Show more"));
    } catch (fault) {
      if (signal.aborted) return;
      button?.remove();
      place.append(faultBox(fault, (event) => { event.target.closest(".fault").remove(); more(); }));
      place.querySelector("[role=status]")?.remove();
    }
  }

  more();
  return place;
}
