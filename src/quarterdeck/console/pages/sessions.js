// All sessions of the workspace, and the way to a new one.

import { can } from "../credential.js";
import { field } from "../dialogs.js";
import { el, fill } from "../dom.js";
import { emptyBox } from "../notices.js";
import { go } from "../router.js";
import { createSession } from "../session/creating.js";
import { sessionList } from "../session/session_list.js";

// Long enough that a word is asked for once and not letter by letter.
const TYPING_MS = 250;

export async function show(view) {
  const search = el("input", { type: "search", maxlength: 200, value: view.query.get("search") ?? "", on: { input: typed } });
  const archived = el("input", { type: "checkbox", role: "switch", checked: view.query.get("archived") === "true", on: { change: ask } });
  const list = sessionList(view.signal, empty);
  let timer = null;

  function typed() {
    clearTimeout(timer);
    timer = setTimeout(ask, TYPING_MS);
  }

  function ask() {
    if (view.signal.aborted) return;
    const query = {};
    if (search.value.trim() !== "") query.search = search.value.trim();
    if (archived.checked) query.archived = "true";
    const shown = new URLSearchParams(query).toString();
    // Not by the router: the page stays as it is.
    history.replaceState(null, "", `#/sessions${shown && `?${shown}`}`);
    list.ask(query);
  }

  async function create() {
    const made = await createSession(view.signal);
    if (made !== null) go(`/sessions/${made.id}`);
  }

  function newButton() {
    const may = can("session.manage");
    const why = may ? null : "Your key lacks session.manage.";
    return el("button", { type: "button", class: "primary", disabled: !may, title: why, on: { click: create } }, "New session");
  }

  function empty(query) {
    if (query.search) return emptyBox("No session is called that", el("p", {}, "Titles that contain what you typed are found."));
    if (query.archived) return emptyBox("Nothing is archived", el("p", {}, "A session that is archived takes no input and waits here."));
    return emptyBox("No sessions yet", el("p", {}, "A session is a conversation with an agent. Create one and write the first message."), newButton());
  }

  fill(
    view.main,
    view.title("Sessions", newButton()),
    el(
      "div",
      { class: "toolbar" },
      field("Search by title", search),
      el("label", { class: "choice switch" }, archived, "Archived ones"),
    ),
    list.node,
  );
  ask();
}
