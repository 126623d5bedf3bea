// The audit log. The filters are part of the address, so a filtered view can be shared.

import { get } from "../api.js";
import { auditEntries } from "../audit/entries.js";
import { ACTION_CHOICES, TYPE_CHOICES } from "../audit/labels.js";
import { can } from "../credential.js";
import { field } from "../dialogs.js";
import { el, fill } from "../dom.js";
import { emptyState, missingPermission } from "../notices.js";
import { currentRoute, replaceQuery } from "../router.js";
import { userName } from "../users.js";

const MAX_MEMBERS = 200;

export async function show(view) {
  if (!can("workspace.read")) {
    fill(view.main, view.title("Audit log"), missingPermission("the audit log", "workspace.read"));
    return;
  }
  const controls = {
    action: select("Any action", ACTION_CHOICES, view.query.get("action")),
    object_type: select("Any type", TYPE_CHOICES, view.query.get("object_type")),
    user_id: select("Anyone", [], view.query.get("user_id")),
    since: el("input", { type: "date", value: view.query.get("since") ?? "" }),
    until: el("input", { type: "date", value: view.query.get("until") ?? "" }),
    object_id: el("input", { value: view.query.get("object_id") ?? "", autocomplete: "off", spellcheck: "false", placeholder: "Any" }),
  };
  const labels = { action: "Action", object_type: "Object type", user_id: "User", since: "From", until: "To", object_id: "Object ID" };
  const status = el("p", { class: "muted", role: "status" });
  const clear = el("button", { class: "small", type: "button", hidden: true, on: { click: clearFilters } }, "Clear filters");
  const form = el(
    "form",
    { class: "toolbar audit-filters", "aria-label": "Filters", on: { change: load, submit: (event) => { event.preventDefault(); load(); } } },
    Object.entries(controls).map(([name, control]) => field(labels[name], control)),
  );
  const container = el("div", {});
  let currentQuery = new AbortController();
  fill(view.main, view.title("Audit log"), form, el("div", { class: "audit-count" }, status, clear), container);
  addMembers(controls.user_id, view.signal);
  load();

  function load() {
    currentQuery.abort();
    currentQuery = new AbortController();
    const values = Object.entries(controls).map(([name, control]) => [name, control.value.trim()]);
    const filters = Object.fromEntries(values.filter(([, value]) => value !== ""));
    replaceQuery(filters);
    clear.hidden = Object.keys(filters).length === 0;
    const query = { ...filters, since: startOfDay(filters.since, 0), until: startOfDay(filters.until, 1) };
    const signal = AbortSignal.any([view.signal, currentQuery.signal]);
    auditEntries({ container, query, signal, onLoad, showHistory, empty });
  }

  function onLoad(count, isComplete) {
    status.textContent = count === 0 ? "" : `${count} ${count === 1 ? "entry" : "entries"}${isComplete ? "" : " so far"}, newest first`;
  }

  function showHistory(objectId) {
    for (const control of Object.values(controls)) control.value = "";
    controls.object_id.value = objectId;
    load();
    controls.object_id.focus();
  }

  function clearFilters() {
    for (const control of Object.values(controls)) control.value = "";
    load();
    controls.action.focus();
  }

  function empty() {
    const button = el("button", { type: "button", on: { click: clearFilters } }, "Clear filters");
    if (!clear.hidden) return emptyState("No matching entries", el("p", {}, "No entry matches these filters."), button);
    return emptyState("No entries yet", el("p", {}, "Every change in the workspace is recorded here."));
  }
}

/** A selected value that is not among the choices, from the address, is added to them. */
function select(anyLabel, choices, selected) {
  const all = selected === null || choices.some(([value]) => value === selected) ? choices : [...choices, [selected, selected]];
  return el("select", {}, [["", anyLabel], ...all].map(([value, label]) => el("option", { value, selected: value === (selected ?? "") }, label)));
}

/** Loaded in the background; the other filters work without it. */
async function addMembers(userSelect, signal) {
  try {
    const { items } = await get("/members", { limit: MAX_MEMBERS, order: "asc" }, signal);
    for (const { user } of items) {
      userSelect.querySelector(`option[value="${user.user_id}"]`)?.remove();
      const option = el("option", { value: user.user_id }, userName(user));
      userSelect.append(option);
      option.selected = currentRoute().query.get("user_id") === user.user_id;
    }
  } catch {
    // The request for the entries reports the same error.
  }
}

/** Midnight in the user's time zone, `addDays` days later, as an ISO date. */
function startOfDay(day, addDays) {
  if (!day) return null;
  const date = new Date(`${day}T00:00:00`);
  date.setDate(date.getDate() + addDays);
  return Number.isNaN(date.getTime()) ? null : date.toISOString();
}
