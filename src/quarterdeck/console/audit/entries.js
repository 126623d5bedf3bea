// The entries of the audit log, newest first, grouped by day.

import { get } from "../api.js";
import { copyButton } from "../clipboard.js";
import { el, fill } from "../dom.js";
import { errorBox, loading } from "../notices.js";
import { formatDateTime, relativeTime } from "../time_format.js";
import { userName } from "../users.js";
import { visibleName, visibleText } from "../visible_text.js";
import { actionPhrase, detailName, objectLink, objectName, objectTypeName } from "./labels.js";

const DAY = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long", year: "numeric" });

/**
 * Fills `container` with the entries that match the query, one page at a time. `onLoad(count, isComplete)` is called after
 * each page; `showHistory(id)` filters by one object.
 */
export function auditEntries({ container, query, signal, onLoad, showHistory, empty }) {
  let after = null;
  let count = 0;
  let list = null;
  let day = null;

  async function loadPage() {
    const button = container.querySelector("button.more");
    if (button) button.disabled = true;
    try {
      const page = await get("/audit-events", { limit: 50, ...query, after }, signal);
      removeControls();
      const added = page.items.map(addEntry);
      after = page.next_cursor;
      count += added.length;
      if (count === 0) fill(container, empty());
      if (after !== null) container.append(el("button", { class: "more", type: "button", on: { click: loadPage } }, "Show older entries"));
      // The button that had the focus was removed.
      if (button) added[0]?.querySelector("summary").focus();
      onLoad(count, after === null);
    } catch (error) {
      if (signal.aborted) return;
      removeControls();
      container.append(errorBox(error, loadPage));
    }
  }

  function removeControls() {
    for (const node of container.querySelectorAll(":scope > [role=status], :scope > .error, :scope > button")) node.remove();
  }

  function addEntry(item) {
    const itemDay = DAY.format(new Date(item.created_at));
    if (itemDay !== day) {
      day = itemDay;
      list = el("ol", { class: "audit-day" });
      container.append(el("h2", { class: "section" }, day), list);
    }
    const node = el("li", {}, entry(item, showHistory));
    list.append(node);
    return node;
  }

  fill(container, loading("audit log"));
  return loadPage();
}

function entry(item, showHistory) {
  const name = objectName(item);
  return el(
    "details",
    { class: "audit-entry" },
    el(
      "summary",
      {},
      el("span", { class: "audit-what" }, el("strong", {}, item.actor ? userName(item.actor) : "Operator"), ` ${actionPhrase(item)}`, name !== null && ` “${visibleName(name)}”`),
      relativeTime(item.created_at),
    ),
    details(item, showHistory),
  );
}

function details(item, showHistory) {
  const link = objectLink(item);
  const name = objectName(item);
  const rows = [
    ["Time", formatDateTime(item.created_at)],
    ["Action", el("code", {}, item.action)],
    ["User", item.actor ? [userName(item.actor), item.actor.display_name && item.actor.primary_email && ` (${item.actor.primary_email})`] : "Operator"],
    ["Object", [objectTypeName(item), name !== null && ` “${visibleName(name)}”`]],
    ["Object ID", idWithCopy(item.object_id, "object ID")],
    item.api_key_id && ["API key", idWithCopy(item.api_key_id, "key ID")],
    item.device_id && ["Device", idWithCopy(item.device_id, "device ID")],
    item.trusted_job_id && ["Trusted job", idWithCopy(item.trusted_job_id, "job ID")],
    item.session_token_id && ["Session token", idWithCopy(item.session_token_id, "token ID")],
    item.address && ["IP address", el("code", {}, item.address)],
    item.request_id && ["Request", idWithCopy(item.request_id, "request ID")],
    ...Object.entries(item.detail).map(([key, value]) => [detailName(item, key), detailValue(key, value)]),
  ];
  return el(
    "div",
    { class: "audit-details" },
    el("dl", { class: "facts" }, rows.filter(Boolean).map(([key, value]) => [el("dt", {}, key), el("dd", {}, value)])),
    el(
      "div",
      { class: "buttons" },
      link && el("a", { class: "button", href: link }, "Open"),
      el("button", { type: "button", on: { click: () => showHistory(item.object_id) } }, "Show history"),
    ),
  );
}

function idWithCopy(id, what) {
  return [el("code", {}, id), " ", copyButton(id, what)];
}

function detailValue(key, value) {
  if (key === "session_id") return el("a", { href: `#/sessions/${encodeURIComponent(value)}` }, value);
  if (Array.isArray(value)) return visibleText(value.map(String).join(", ")) || "None";
  if (value === null) return "None";
  return typeof value === "object" ? el("code", {}, visibleText(JSON.stringify(value))) : visibleText(String(value));
}
