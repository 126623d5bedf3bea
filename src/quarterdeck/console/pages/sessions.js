// The list of sessions.

import { can, reasonAgainst } from "../credential.js";
import { el, fill } from "../dom.js";
import { capitalize } from "../format.js";
import { segments } from "../segments.js";
import { emptyState, missingPermission } from "../notices.js";
import { navigate, replaceQuery } from "../router.js";
import { createSession } from "../session/create_dialog.js";
import { sessionList } from "../session/session_list.js";

const SEARCH_DELAY_MS = 250;
const SEARCH_IN = [["titles", "Titles"], ["conversations", "Conversations"]];

export async function show(view) {
  if (!can("workspace.read")) {
    fill(view.main, view.title("Sessions", newButton()), missingPermission("sessions", "workspace.read"));
    return;
  }
  const search = el("input", {
    type: "search", maxlength: 200, value: view.query.get("search") ?? "", "aria-label": "Search sessions", placeholder: "Search sessions",
    on: { input: onInput },
  });
  const searchIn = segments("Search in", SEARCH_IN, view.query.get("in") ?? "titles", load);
  const isArchived = view.query.get("archived") === "true";
  const archived = el("input", { type: "checkbox", role: "switch", checked: isArchived, on: { change: load } });
  const list = sessionList(view.signal, empty);
  let timer = null;

  function onInput() {
    clearTimeout(timer);
    timer = setTimeout(load, SEARCH_DELAY_MS);
  }

  function load() {
    if (view.signal.aborted) return;
    const query = {};
    if (search.value.trim() !== "") query.search = search.value.trim();
    if (searchIn.value() !== "titles") query.in = searchIn.value();
    if (archived.checked) query.archived = "true";
    replaceQuery(query);
    list.load(query);
  }

  async function create() {
    const session = await createSession(view.signal);
    if (session !== null) navigate(`/sessions/${session.id}?new`);
  }

  function newButton() {
    const isAllowed = can("session.manage");
    const reason = isAllowed ? null : capitalize(reasonAgainst("session.manage"));
    const attributes = { type: "button", class: "primary", disabled: !isAllowed, title: reason, on: { click: create } };
    return el("button", attributes, "New session");
  }

  function empty(query) {
    const text = (content) => el("p", {}, content);
    if (query.search) return emptyState("No matching sessions", text(query.in ? "No message contains these words." : "No session title contains this text."));
    if (query.archived) return emptyState("No archived sessions");
    return emptyState("No sessions yet", text("A session is a conversation with an agent."), newButton());
  }

  fill(
    view.main,
    view.title("Sessions", newButton()),
    el(
      "div",
      { class: "toolbar" },
      el("div", { class: "field" }, search),
      searchIn.node,
      el("label", { class: "choice switch" }, archived, "Show archived"),
    ),
    list.node,
  );
  load();
  // After the heading has received the focus, to which the dialog returns it.
  if (view.query.has("new") && can("session.manage")) setTimeout(create);
}
