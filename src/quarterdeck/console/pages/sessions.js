// All sessions of the workspace, and the way to a new one.

import { can } from "../credential.js";
import { field } from "../dialogs.js";
import { el, fill } from "../dom.js";
import { emptyBox, lackingBox } from "../notices.js";
import { go, keepQuery } from "../router.js";
import { createSession } from "../session/creating.js";
import { sessionList } from "../session/session_list.js";

// Long enough that a word is asked for once and not letter by letter.
const TYPING_MS = 250;

export async function show(view) {
  if (!can("workspace.read")) {
    fill(view.main, view.title("Sessions", newButton()), lackingBox("the sessions", "workspace.read"));
    return;
  }
  const [wanted, isArchived] = [view.query.get("search") ?? "", view.query.get("archived") === "true"];
  const search = el("input", { type: "search", maxlength: 200, value: wanted, on: { input: typed } });
  const archived = el("input", { type: "checkbox", role: "switch", checked: isArchived, on: { change: ask } });
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
    keepQuery(query);
    list.ask(query);
  }

  async function create() {
    const made = await createSession(view.signal);
    if (made !== null) go(`/sessions/${made.id}`);
  }

  function newButton() {
    const may = can("session.manage");
    const why = may ? null : "Your key lacks session.manage.";
    const attributes = { type: "button", class: "primary", disabled: !may, title: why, on: { click: create } };
    return el("button", attributes, "New session");
  }

  function empty(query) {
    const say = (text) => el("p", {}, text);
    if (query.search) return emptyBox("No session is called that", say("Titles that contain what you type are found."));
    if (query.archived) return emptyBox("Nothing is archived", say("A session that is archived waits here."));
    const first = "A session is a conversation with an agent. Create one and write the first message.";
    return emptyBox("No sessions yet", say(first), newButton());
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
