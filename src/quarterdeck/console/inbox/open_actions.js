// The open requests of the workspace, for the count in the navigation and for the Inbox. Polled while the tab is visible.

import { get } from "../api.js";
import { can, tokenSessionId, whoami } from "../credential.js";
import { el } from "../dom.js";

const REFRESH_MS = 10_000;
// If the requests are so large that a page holds only some of them.
const REFRESH_LARGE_MS = 60_000;
// After an event of a session: several requests can be opened or answered at once.
const SOON_MS = 300;
const MAX_COUNT = 99;

let ids = [];
/** There are more open requests than `ids`. */
let hasMore = false;
/** The workspace of `ids`. */
let workspaceId = null;
let timer = null;
/** Called when the open requests have changed. */
const listeners = new Set();

/** The badge of the Inbox in the navigation. Also starts the polling. */
export function inboxBadge() {
  if (whoami().workspace_id !== workspaceId) {
    [ids, hasMore, workspaceId] = [[], false, whoami().workspace_id];
    schedule(0);
  }
  return fillBadge(el("span", { class: "count", "aria-live": "polite" }));
}

export function onOpenActionsChange(listener, signal) {
  listeners.add(listener);
  signal.addEventListener("abort", () => listeners.delete(listener), { once: true });
}

/** Call after a request was opened or answered. */
export function refreshOpenActions() {
  if (isAllowed()) schedule(SOON_MS);
}

function isAllowed() {
  return can("workspace.read") && tokenSessionId() === null;
}

function schedule(ms) {
  clearTimeout(timer);
  timer = setTimeout(refresh, ms);
}

async function refresh() {
  let nextMs = REFRESH_MS;
  if (isAllowed() && !document.hidden) {
    try {
      const askedFor = workspaceId;
      const { items, next_cursor: next } = await get("/actions", { state: "open", limit: MAX_COUNT });
      if (askedFor === workspaceId) update(items.map((action) => action.id), next !== null);
      if (next !== null && items.length < MAX_COUNT) nextMs = REFRESH_LARGE_MS;
    } catch {
      // The count is only out of date; the next request tries again.
    }
  }
  schedule(nextMs);
}

function update(newIds, newHasMore) {
  if (newIds.join() === ids.join() && newHasMore === hasMore) return;
  [ids, hasMore] = [newIds, newHasMore];
  for (const badge of document.querySelectorAll(".sidebar .count")) fillBadge(badge);
  for (const listener of listeners) listener();
}

function fillBadge(badge) {
  const count = `${ids.length}${hasMore ? "+" : ""}`;
  badge.hidden = ids.length === 0;
  badge.replaceChildren(...(ids.length === 0 ? [] : [count, el("span", { class: "visually-hidden" }, count === "1" ? " open request" : " open requests")]));
  return badge;
}

document.addEventListener("visibilitychange", () => { if (timer !== null && !document.hidden) schedule(0); });
