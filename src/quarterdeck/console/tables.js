// Tables, which become cards on narrow screens, and tables over paged lists.

import { get } from "./api.js";
import { el, fill } from "./dom.js";
import { errorBox, loading } from "./notices.js";

const PAGE_SIZE = 50;
/** @type {(item: object) => object} */
const noAttributes = () => ({});

/**
 * `columns`: `{name, cell(item), class?}`. `row(item)` returns attributes of the row. Roles are explicit because a table
 * that CSS lays out as cards loses its implicit roles.
 */
export function table(caption, columns, items, row = noAttributes) {
  const head = el("tr", { role: "row" }, columns.map((column) => el("th", { role: "columnheader", scope: "col", class: column.class }, column.name)));
  return el(
    "table",
    { role: "table" },
    el("caption", { class: "visually-hidden" }, caption),
    el("thead", { role: "rowgroup" }, head),
    el("tbody", { role: "rowgroup" }, items.map((item) => tableRow(columns, item, row))),
  );
}

export function tableRow(columns, item, row = noAttributes) {
  const cells = columns.map((column) => el("td", { role: "cell", "data-label": column.name, class: column.class }, column.cell(item)));
  return el("tr", { role: "row", ...row(item) }, cells);
}

/** The first page of a list, with a button that loads more. `empty()` is shown if the list has no items. */
export function pagedTable({ caption, columns, path, query = {}, signal, empty, row = noAttributes }) {
  const container = el("div", {}, loading(caption.toLowerCase()));
  let body = null;
  let after = null;

  async function loadPage() {
    const button = container.querySelector("button.more");
    if (button) button.disabled = true;
    try {
      const page = await get(path, { limit: PAGE_SIZE, ...query, after }, signal);
      if (body === null && page.items.length === 0) return fill(container, empty());
      after = page.next_cursor;
      if (body === null) {
        const node = table(caption, columns, page.items, row);
        body = node.querySelector("tbody");
        fill(container, node);
      } else {
        body.append(...page.items.map((item) => tableRow(columns, item, row)));
      }
      button?.remove();
      if (after !== null) container.append(el("button", { class: "more", type: "button", on: { click: loadPage } }, "Show more"));
    } catch (error) {
      if (signal.aborted) return;
      button?.remove();
      container.append(errorBox(error, (event) => { event.target.closest(".error").remove(); loadPage(); }));
      container.querySelector("[role=status]")?.remove();
    }
  }

  loadPage();
  return container;
}
