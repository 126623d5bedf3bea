// The list of sessions: pages as one asks for them, and kept up with what happens. A row stays the same element for as
// long as its session is listed, so the focus and the place on the page stay too.

import { get, pause } from "../api.js";
import { el, fill } from "../dom.js";
import { faultBox, loading } from "../notices.js";
import { nameOf as personName } from "../people.js";
import { table, tableRow } from "../tables.js";
import { when } from "../times.js";
import { nameOf } from "./changing.js";

const PAGE = 50;
const LARGEST_PAGE = 200;
const REFRESH_MS = 3000;

const COLUMNS = [
  { name: "Title", cell: (one) => el("a", { href: `#/sessions/${one.id}` }, nameOf(one)) },
  { name: "State", cell: state, class: "state" },
  { name: "Model", class: "model", cell: (one) => one.model ?? el("span", { class: "quiet" }, "as the server is set") },
  { name: "Created", class: "created", cell: (one) => when(one.created_at) },
  { name: "By", class: "by", cell: (one) => personName(one.created_by) },
];

function state({ active_run: run, archived_at: archivedAt }) {
  if (run?.state === "running") return el("span", { class: "tag run live" }, "running");
  if (run?.state === "queued") return el("span", { class: "tag warn" }, "queued");
  return el("span", { class: "tag" }, archivedAt === null ? "idle" : "archived");
}

/** `node`, and `ask(query)` for another selection. `empty(query)` is shown when it holds nothing. */
export function sessionList(signal, empty) {
  const node = el("div", { class: "session-list" }, loading("the sessions"));
  const made = table("Sessions", COLUMNS, []);
  const body = made.querySelector("tbody");
  const button = el("button", { class: "more", type: "button", on: { click: more } }, "Show more");
  const fault = el("div", {});
  let rows = new Map();
  let query = {};
  let next = null;
  let asking = new AbortController();
  /** The query whose emptiness is shown, if it is. */
  let emptyFor = null;

  async function ask(wanted) {
    asking.abort();
    asking = new AbortController();
    query = wanted;
    const either = AbortSignal.any([signal, asking.signal]);
    try {
      const page = await get("/sessions", { ...query, limit: PAGE }, either);
      next = page.next_cursor;
      fill(fault);
      draw(page.items);
    } catch (found) {
      if (either.aborted) return;
      emptyFor = null;
      fill(node, fill(fault, faultBox(found, () => ask(query))));
      return;
    }
    keepUp(either);
  }

  async function more() {
    button.disabled = true;
    const until = AbortSignal.any([signal, asking.signal]);
    try {
      const page = await get("/sessions", { ...query, limit: PAGE, after: next }, until);
      next = page.next_cursor;
      fill(fault);
      draw([...items(), ...page.items]);
    } catch (found) {
      if (!until.aborted) fill(fault, faultBox(found));
    } finally {
      button.disabled = false;
    }
  }

  /** As far as the list was loaded, again and again while someone may be looking. */
  async function keepUp(either) {
    for (;;) {
      try {
        await pause(REFRESH_MS, either);
        if (document.visibilityState === "visible") await refresh(either);
      } catch (found) {
        if (either.aborted) return;
        // It is only older than it could be. What was asked for by hand says so when it fails.
      }
    }
  }

  async function refresh(either) {
    const loaded = rows.size;
    // Ids grow with time: so far the list reaches down, whatever has come on top of it.
    const last = [...rows.keys()].at(-1) ?? null;
    const limit = Math.min(LARGEST_PAGE, loaded + PAGE);
    const found = [];
    let after = null;
    do {
      const page = await get("/sessions", { ...query, limit, after }, either);
      found.push(...page.items);
      after = page.next_cursor;
    } while (after !== null && last !== null && after > last);
    // Another page may have been loaded meanwhile; it is part of the next refresh.
    if (rows.size !== loaded) return;
    const kept = last === null || next === null ? found : found.filter((one) => one.id >= last);
    next = kept.length < found.length ? kept.at(-1)?.id ?? null : after;
    draw(kept);
  }

  function draw(sessions) {
    const before = rows;
    rows = new Map(sessions.map((one) => [one.id, rowOf(before.get(one.id), one)]));
    for (const [id, { row }] of before) if (!rows.has(id)) row.remove();
    let place = body.firstChild;
    for (const { row } of rows.values()) {
      if (row === place) place = place.nextSibling;
      else body.insertBefore(row, place);
    }
    button.hidden = next === null;
    if (rows.size > 0) {
      emptyFor = null;
      if (node.firstChild !== made) fill(node, made, button, fault);
    } else if (emptyFor !== query) {
      emptyFor = query;
      fill(node, empty(query), fault);
    }
  }

  const items = () => [...rows.values()].map((one) => one.item);
  return { node, ask };
}

/** Cells that say the same stay. */
function rowOf(before, item) {
  if (before === undefined) return { item, row: tableRow(COLUMNS, item) };
  const fresh = tableRow(COLUMNS, item);
  for (const [at, cell] of [...before.row.cells].entries()) {
    const now = fresh.cells[at];
    if (cell.textContent === now.textContent) continue;
    const link = cell.querySelector("a");
    if (link) link.textContent = now.textContent;
    else cell.replaceChildren(...now.childNodes);
  }
  return { item, row: before.row };
}
