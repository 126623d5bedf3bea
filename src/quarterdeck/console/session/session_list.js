// The list of sessions. It refreshes itself; existing rows are updated in place, so focus and scroll position stay.

import { get, sleep } from "../api.js";
import { el, fill } from "../dom.js";
import { runStateName } from "../format.js";
import { errorBox, loading } from "../notices.js";
import { table, tableRow } from "../tables.js";
import { relativeTime } from "../time_format.js";
import { userName } from "../users.js";
import { sessionTitle } from "./session_menu.js";

const PAGE_SIZE = 50;
const MAX_PAGE_SIZE = 200;
const REFRESH_MS = 3000;

const COLUMNS = [
  { name: "Title", class: "title", cell: (session) => el("a", { href: `#/sessions/${session.id}` }, sessionTitle(session)) },
  { name: "Last run", class: "state", cell: lastRun },
  { name: "Last activity", class: "activity", cell: (session) => relativeTime(session.last_activity_at) },
  { name: "Model", class: "model", cell: (session) => session.model ?? el("span", { class: "muted" }, `Default (${session.effective_model})`) },
  { name: "Created", class: "created", cell: (session) => relativeTime(session.created_at) },
  { name: "Created by", class: "by", cell: (session) => userName(session.created_by) },
];
const RUN_TONES = {
  pending: "warn",
  queued: "warn",
  running: "run live",
  waiting: "warn",
  succeeded: "good",
  failed: "bad",
};

/** The runs that a fork has copied exist only in its log. */
function lastRun({ last_run: run, forked_from: origin }) {
  if (run === null) return el("span", { class: "muted" }, origin === null ? "No runs" : "Forked");
  return el("span", { class: `tag ${RUN_TONES[run.state] ?? ""}` }, run.state === "waiting" ? "Waiting for you" : runStateName(run.state));
}

/** Returns `{node, load(query)}`. `empty(query)` is shown if no session matches. */
export function sessionList(signal, empty) {
  const node = el("div", { class: "session-list" }, loading("sessions"));
  const tableNode = table("Sessions", COLUMNS, []);
  const body = tableNode.querySelector("tbody");
  const button = el("button", { class: "more", type: "button", on: { click: loadMore } }, "Show more");
  const errorContainer = el("div", {});
  let rows = new Map();
  let query = {};
  let next = null;
  let currentQuery = new AbortController();
  /** The query whose empty state is shown, or null. */
  let emptyFor = null;

  async function load(newQuery) {
    currentQuery.abort();
    currentQuery = new AbortController();
    query = newQuery;
    const either = AbortSignal.any([signal, currentQuery.signal]);
    try {
      const page = await get("/sessions", { ...query, limit: PAGE_SIZE }, either);
      next = page.next_cursor;
      fill(errorContainer);
      draw(page.items);
    } catch (error) {
      if (either.aborted) return;
      emptyFor = null;
      fill(node, fill(errorContainer, errorBox(error, () => load(query))));
      return;
    }
    refreshRegularly(either);
  }

  async function loadMore() {
    button.disabled = true;
    const either = AbortSignal.any([signal, currentQuery.signal]);
    try {
      const page = await get("/sessions", { ...query, limit: PAGE_SIZE, after: next }, either);
      next = page.next_cursor;
      fill(errorContainer);
      draw([...[...rows.values()].map((one) => one.session), ...page.items]);
    } catch (error) {
      if (!either.aborted) fill(errorContainer, errorBox(error));
    } finally {
      button.disabled = false;
    }
  }

  async function refreshRegularly(either) {
    for (;;) {
      try {
        await sleep(REFRESH_MS, either);
        if (document.visibilityState === "visible") await refresh(either);
      } catch {
        if (either.aborted) return;
        // The list is only out of date; the next refresh tries again.
      }
    }
  }

  /** Loads everything down to the last row again. Ids grow with time, so new sessions are at the top. */
  async function refresh(either) {
    const loaded = rows.size;
    const last = [...rows.keys()].at(-1) ?? null;
    const limit = Math.min(MAX_PAGE_SIZE, loaded + PAGE_SIZE);
    const sessions = [];
    let after = null;
    do {
      const page = await get("/sessions", { ...query, limit, after }, either);
      sessions.push(...page.items);
      after = page.next_cursor;
    } while (after !== null && last !== null && after > last);
    // `loadMore` has added rows meanwhile; the next refresh includes them.
    if (rows.size !== loaded) return;
    const kept = last === null || next === null ? sessions : sessions.filter((one) => one.id >= last);
    next = kept.length < sessions.length ? kept.at(-1)?.id ?? null : after;
    draw(kept);
  }

  function draw(sessions) {
    const oldRows = rows;
    rows = new Map(sessions.map((session) => [session.id, updateRow(oldRows.get(session.id), session)]));
    for (const [id, { row }] of oldRows) if (!rows.has(id)) row.remove();
    let following = body.firstChild;
    for (const { row } of rows.values()) {
      if (row === following) following = following.nextSibling;
      else body.insertBefore(row, following);
    }
    button.hidden = next === null;
    if (rows.size > 0) {
      emptyFor = null;
      if (node.firstChild !== tableNode) fill(node, tableNode, button, errorContainer);
    } else if (emptyFor !== query) {
      emptyFor = query;
      fill(node, empty(query), errorContainer);
    }
  }

  return { node, load };
}

/** Replaces only the cells that have changed. */
function updateRow(old, session) {
  const fresh = tableRow(COLUMNS, session);
  if (old === undefined) return { session, row: fresh };
  for (const [index, cell] of [...old.row.cells].entries()) {
    const freshCell = fresh.cells[index];
    if (cell.textContent === freshCell.textContent) continue;
    const link = cell.querySelector("a");
    if (link) link.textContent = freshCell.textContent;
    else cell.replaceChildren(...freshCell.childNodes);
  }
  return { session, row: old.row };
}
