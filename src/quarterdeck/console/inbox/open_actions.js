// The open requests of the workspace, for the count in the navigation and for the Inbox. Polled while the tab is visible.

import { get } from "../api.js";
import { can, tokenSessionId, whoami } from "../credential.js";
import { el } from "../dom.js";

const REFRESH_MS = 10_000;
// After an event of a session: several requests can be opened or answered at once.
const SOON_MS = 300;
const MAX_COUNT = 99;

let ids = [];
/** The workspace of `ids`. */
let workspaceId = null;
let timer = null;
/** Called when the open requests have changed. */
const listeners = new Set();

/** The badge of the Inbox in the navigation. Also starts the polling. */
export function inboxBadge() {
  if (whoami().workspace_id !== workspaceId) {
    [ids, workspaceId] = [[], whoami().workspace_id];
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
  if (isAllowed() && !document.hidden) {
    try {
      // One more than can be shown, to know whether there are more.
      const askedFor = workspaceId;
      const { items } = await get("/actions", { state: "open", limit: MAX_COUNT + 1 });
      if (askedFor === workspaceId) update(items.map((action) => action.id));
    } catch {
      // The count is only out of date; the next request tries again.
    }
  }
  schedule(REFRESH_MS);
}

function update(newIds) {
  if (newIds.join() === ids.join()) return;
  ids = newIds;
  for (const badge of document.querySelectorAll(".sidebar .count")) fillBadge(badge);
  for (const listener of listeners) listener();
}

function fillBadge(badge) {
  const count = ids.length > MAX_COUNT ? `${MAX_COUNT}+` : String(ids.length);
  badge.hidden = ids.length === 0;
  badge.replaceChildren(...(ids.length === 0 ? [] : [count, el("span", { class: "visually-hidden" }, ids.length === 1 ? " open request" : " open requests")]));
  return badge;
}

document.addEventListener("visibilitychange", () => { if (timer !== null && !document.hidden) schedule(0); });
