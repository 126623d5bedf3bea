// The deliveries of a webhook. The list refreshes itself while a delivery is pending.

import { get, sleep } from "../api.js";
import { el, fill } from "../dom.js";
import { formatDuration, relativeTime } from "../time_format.js";
import { emptyState, errorBox, loading } from "../notices.js";
import { table, tableRow } from "../tables.js";
import { visibleText } from "../visible_text.js";
import { deliveryState } from "./state.js";

const PAGE_SIZE = 50;
const REFRESH_MS = 3000;

/** Returns `{node, load(state)}`. `redeliver(delivery)` sends a delivery again; null if the key is not allowed to. */
export function deliveryList(webhookId, redeliver, signal) {
  const path = `/webhooks/${webhookId}/deliveries`;
  const node = el("div", {}, loading("deliveries"));
  const columns = deliveryColumns(redeliver);
  let query = {};
  let currentQuery = new AbortController();

  async function load(state = query.state) {
    currentQuery.abort();
    currentQuery = new AbortController();
    query = state ? { state } : {};
    const either = AbortSignal.any([signal, currentQuery.signal]);
    try {
      const page = await get(path, { ...query, limit: PAGE_SIZE }, either);
      draw(page, either);
      refreshWhilePending(page, either);
    } catch (error) {
      if (!either.aborted) fill(node, errorBox(error, () => load()));
    }
  }

  function draw(page, either) {
    if (page.items.length === 0) {
      fill(node, empty());
      return;
    }
    const tableNode = table("Deliveries", columns, page.items, rowAttributes);
    fill(node, tableNode);
    showMoreButton(page.next_cursor, tableNode.querySelector("tbody"), either);
  }

  function showMoreButton(after, body, either) {
    if (after === null) return;
    const errorContainer = el("div", {});
    const button = el("button", { class: "more", type: "button", on: { click: loadMore } }, "Show more");
    async function loadMore() {
      button.disabled = true;
      try {
        const page = await get(path, { ...query, limit: PAGE_SIZE, after }, either);
        body.append(...page.items.map((one) => tableRow(columns, one, rowAttributes)));
        button.remove();
        errorContainer.remove();
        showMoreButton(page.next_cursor, body, either);
      } catch (error) {
        if (!either.aborted) fill(errorContainer, errorBox(error));
        button.disabled = false;
      }
    }
    node.append(button, errorContainer);
  }

  /** Only the first page: its rows are replaced in place, so that focus and scroll position stay. */
  async function refreshWhilePending(page, either) {
    let items = page.items;
    while (items.some((one) => one.state === "pending")) {
      try {
        await sleep(REFRESH_MS, either);
        if (document.visibilityState !== "visible") continue;
        const fresh = (await get(path, { limit: PAGE_SIZE }, either)).items;
        for (const one of fresh) updateRow(one, items.find(({ id }) => id === one.id));
        items = fresh;
      } catch {
        if (either.aborted) return;
        // The list is only out of date; the next refresh tries again.
      }
    }
  }

  function updateRow(delivery, old) {
    if (old === undefined || JSON.stringify(old) === JSON.stringify(delivery)) return;
    const row = node.querySelector(`[data-id="${delivery.id}"]`);
    const hadFocus = row?.contains(document.activeElement);
    const fresh = tableRow(columns, delivery, rowAttributes);
    row?.replaceWith(fresh);
    if (hadFocus) fresh.querySelector("button")?.focus();
  }

  function empty() {
    return query.state ? emptyState(`No ${query.state} deliveries`) : emptyState("No deliveries yet", el("p", {}, "Deliveries of the last 30 days are listed here. Send a test to see one."));
  }

  return { node, load };
}

function deliveryColumns(redeliver) {
  const columns = [
    { name: "Event", cell: (one) => el("div", {}, el("code", {}, one.event), el("div", { class: "muted small-text delivery-id", title: "webhook-id" }, one.id)) },
    { name: "State", cell: deliveryState },
    { name: "Attempts", class: "number", cell: (one) => String(one.attempts) },
    { name: "Last response", cell: lastResponse },
    { name: "Created", class: "short", cell: (one) => relativeTime(one.created_at) },
  ];
  const button = (one) => el("button", { class: "small", type: "button", "aria-label": `Redeliver ${one.event} ${one.id}`, on: { click: () => redeliver(one) } }, "Redeliver");
  if (redeliver) columns.push({ name: "Actions", class: "actions", cell: (one) => one.state !== "pending" && button(one) });
  return columns;
}

function lastResponse({ attempts, last_status: status, last_error: error, duration_ms: durationMs }) {
  if (attempts === 0) return el("span", { class: "muted" }, "None yet");
  return el(
    "div",
    {},
    status !== null && `HTTP ${status}`,
    durationMs !== null && el("span", { class: "muted" }, `${status === null ? "" : " · "}${formatDuration(durationMs)}`),
    error !== null && el("div", { class: "small-text" }, visibleText(error)),
  );
}

function rowAttributes(delivery) {
  return { "data-id": delivery.id };
}
