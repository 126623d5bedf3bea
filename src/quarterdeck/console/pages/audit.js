// Who did what to which object from where. What is asked for stands in the address, so that it can be shared.

import { get } from "../api.js";
import { entries } from "../audit/entries.js";
import { ACTION_CHOICES, TYPE_CHOICES } from "../audit/words.js";
import { can } from "../credential.js";
import { field } from "../dialogs.js";
import { el, fill } from "../dom.js";
import { emptyBox, lackingBox } from "../notices.js";
import { nameOf } from "../people.js";
import { keepQuery, location } from "../router.js";

const MOST_PEOPLE = 200;

export async function show(view) {
  if (!can("workspace.read")) {
    fill(view.main, view.title("Audit log"), lackingBox("the audit log", "workspace.read"));
    return;
  }
  const controls = {
    action: choice("Any action", ACTION_CHOICES, view.query.get("action")),
    object_type: choice("Anything", TYPE_CHOICES, view.query.get("object_type")),
    user_id: choice("Anyone", [], view.query.get("user_id")),
    since: el("input", { type: "date", value: view.query.get("since") ?? "" }),
    until: el("input", { type: "date", value: view.query.get("until") ?? "" }),
    object_id: el("input", { value: view.query.get("object_id") ?? "", autocomplete: "off", spellcheck: "false", placeholder: "any" }),
  };
  const labels = { action: "Action", object_type: "About", user_id: "By", since: "From", until: "To", object_id: "Object id" };
  const status = el("p", { class: "quiet", role: "status" });
  const clear = el("button", { class: "small", type: "button", on: { click: clearAll } }, "Clear filters");
  const form = el(
    "form",
    { class: "toolbar audit-filters", "aria-label": "Filters", on: { change: ask, submit: (event) => { event.preventDefault(); ask(); } } },
    Object.entries(controls).map(([name, control]) => field(labels[name], control)),
  );
  const place = el("div", {});
  let asking = new AbortController();
  fill(view.main, view.title("Audit log"), form, el("div", { class: "audit-count" }, status, clear), place);
  people(controls.user_id, view.signal);
  ask();

  function ask() {
    asking.abort();
    asking = new AbortController();
    const wanted = Object.entries(controls).map(([name, control]) => [name, control.value.trim()]);
    const kept = Object.fromEntries(wanted.filter(([, value]) => value !== ""));
    keepQuery(kept);
    clear.disabled = Object.keys(kept).length === 0;
    const query = { ...kept, since: startOf(kept.since, 0), until: startOf(kept.until, 1) };
    entries({ place, query, signal: AbortSignal.any([view.signal, asking.signal]), said, about, empty });
  }

  function said(count, isAll) {
    status.textContent = count === 0 ? "" : `${count} ${count === 1 ? "entry" : "entries"}${isAll ? "" : " so far"}, newest first`;
  }

  function about(id) {
    for (const control of Object.values(controls)) control.value = "";
    controls.object_id.value = id;
    ask();
    controls.object_id.focus();
  }

  function clearAll() {
    for (const control of Object.values(controls)) control.value = "";
    ask();
    controls.action.focus();
  }

  function empty() {
    const again = el("button", { type: "button", on: { click: clearAll } }, "Clear filters");
    if (!clear.disabled) return emptyBox("Nothing matches", el("p", {}, "No change fits all of these filters."), again);
    return emptyBox("Nothing has changed yet", el("p", {}, "Every change to the workspace is written down here."));
  }
}

/** A value of the address that is not among the choices is one more. */
function choice(any, choices, chosen) {
  const known = chosen === null || choices.some(([value]) => value === chosen) ? choices : [...choices, [chosen, chosen]];
  return el("select", {}, [["", any], ...known].map(([value, words]) => el("option", { value, selected: value === (chosen ?? "") }, words)));
}

/** Those who are listed come when they come; without them one can filter by the rest. */
async function people(select, signal) {
  try {
    const { items } = await get("/members", { limit: MOST_PEOPLE, order: "asc" }, signal);
    for (const { user } of items) {
      select.querySelector(`option[value="${user.user_id}"]`)?.remove();
      const option = el("option", { value: user.user_id }, nameOf(user));
      select.append(option);
      option.selected = location().query.get("user_id") === user.user_id;
    }
  } catch {
    // The page's own request says what is wrong.
  }
}

/** The first moment of a day of the person's calendar, or of one some days later. */
function startOf(day, later) {
  if (!day) return null;
  const at = new Date(`${day}T00:00:00`);
  at.setDate(at.getDate() + later);
  return Number.isNaN(at.getTime()) ? null : at.toISOString();
}
