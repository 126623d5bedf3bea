// The entries of the audit log, newest first under their days; each unfolds.

import { get } from "../api.js";
import { copyButton } from "../copying.js";
import { el, fill } from "../dom.js";
import { faultBox, loading } from "../notices.js";
import { nameOf } from "../people.js";
import { exact, when } from "../times.js";
import { named, visible } from "../visible.js";
import { done, objectName, placeOf } from "./words.js";

const DAY = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long", year: "numeric" });

/**
 * Fills `place` with the entries that the query asks for, a page at a time. `said(count, isAll)` is told how many there
 * are; `about(id)` shows only those of one object.
 */
export function entries({ place, query, signal, said, about, empty }) {
  let after = null;
  let shown = 0;
  let list = null;
  let day = null;

  async function more() {
    const button = place.querySelector("button.more");
    if (button) button.disabled = true;
    try {
      const page = await get("/audit-events", { limit: 50, ...query, after }, signal);
      place.querySelectorAll(":scope > [role=status], :scope > .fault, :scope > button").forEach((one) => one.remove());
      const first = add(page.items);
      after = page.next_cursor;
      shown += page.items.length;
      if (shown === 0) fill(place, empty());
      if (after !== null) place.append(el("button", { class: "more", type: "button", on: { click: more } }, "Show older entries"));
      // The button that had the focus is gone: one goes on reading where it stood.
      if (button && first) first.querySelector("summary").focus();
      said(shown, after === null);
    } catch (fault) {
      if (signal.aborted) return;
      place.querySelectorAll(":scope > [role=status], :scope > .fault, :scope > button").forEach((one) => one.remove());
      place.append(faultBox(fault, more));
    }
  }

  function add(items) {
    const made = items.map((item) => {
      const its = DAY.format(new Date(item.created_at));
      if (its !== day) {
        day = its;
        list = el("ol", { class: "audit-day" });
        place.append(el("h2", { class: "section" }, day), list);
      }
      const node = el("li", {}, entry(item, about));
      list.append(node);
      return node;
    });
    return made[0] ?? null;
  }

  fill(place, loading("the audit log"));
  return more();
}

function entry(item, about) {
  const name = objectName(item);
  return el(
    "details",
    { class: "audit-entry" },
    el(
      "summary",
      {},
      el("span", { class: "audit-what" }, el("strong", {}, item.actor ? nameOf(item.actor) : "The operator"), ` ${done(item)}`, name !== null && ` “${named(name)}”`),
      when(item.created_at),
    ),
    details(item, about),
  );
}

function details(item, about) {
  const place = placeOf(item);
  const rows = [
    ["When", exact(item.created_at)],
    ["Action", el("code", {}, item.action)],
    ["Who", item.actor ? [nameOf(item.actor), item.actor.display_name && item.actor.primary_email && ` (${item.actor.primary_email})`] : "The operator, on the database itself"],
    ["Object", [item.object_type.replaceAll("_", " "), " ", copied(item.object_id, "the id of the object")]],
    item.api_key_id && ["With the key", copied(item.api_key_id, "the id of the key")],
    item.session_token_id && ["By the token", copied(item.session_token_id, "the id of the token")],
    item.address && ["From", el("code", {}, item.address)],
    item.request_id && ["Request", copied(item.request_id, "the request id")],
    ...Object.entries(item.detail).map(([key, value]) => [key.replaceAll("_", " "), told(value)]),
  ];
  return el(
    "div",
    { class: "audit-details" },
    el("dl", { class: "facts" }, rows.filter(Boolean).map(([key, value]) => [el("dt", {}, key), el("dd", {}, value)])),
    el(
      "div",
      { class: "buttons" },
      place && el("a", { class: "button", href: place }, "Go to it"),
      el("button", { type: "button", on: { click: () => about(item.object_id) } }, "Everything about this object"),
    ),
  );
}

function copied(id, what) {
  return [el("code", {}, id), " ", copyButton(id, what)];
}

/** Names and numbers, whatever shape they came in. */
function told(value) {
  if (Array.isArray(value)) return visible(value.map(String).join(", ")) || "none";
  if (value === null) return "none";
  return typeof value === "object" ? el("code", {}, visible(JSON.stringify(value))) : visible(String(value));
}
