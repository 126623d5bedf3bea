// One agent: its versions and its statistics.

import { get, patch } from "../api.js";
import { agentStats } from "../agents/stats.js";
import { versionColumns } from "../agents/versions.js";
import { copyButton } from "../clipboard.js";
import { can } from "../credential.js";
import { el, fill } from "../dom.js";
import { emptyState, notice } from "../notices.js";
import { navigate } from "../router.js";
import { createSession } from "../session/create_dialog.js";
import { pagedTable } from "../tables.js";
import { formatDateTime, relativeTime } from "../time_format.js";
import { userName } from "../users.js";
import { archiveDialog, renameDialog, useVersionDialog } from "../versioned_dialogs.js";
import { compareForm, versionChoice } from "../versions.js";
import { visibleName } from "../visible_text.js";

export async function show(view, { id }) {
  const path = `/agents/${encodeURIComponent(id)}`;
  let agent = await get(path, {}, view.signal);
  if (view.signal.aborted) return;
  const canChange = can("agent.manage");
  const stats = agentStats(path, view.signal);
  const use = canChange ? (version) => redrawAfter(useVersionDialog(agent, version, change)) : null;

  function draw() {
    fill(
      view.main,
      header(),
      agent.archived_at && el("p", { class: "card" }, `Archived on ${formatDateTime(agent.archived_at)}. Existing sessions keep this agent; new sessions can't use it.`),
      details(agent, use),
      el("div", { class: "section-head" }, el("h2", {}, "Versions"), agent.latest_version > 1 && compareForm(path, agent)),
      versions(),
      agent.latest_version !== null && stats,
    );
    view.main.querySelector("h1").focus();
  }

  function header() {
    const button = (text, act, attributes = {}) => el("button", { type: "button", ...attributes, on: { click: act } }, text);
    const isArchived = agent.archived_at !== null;
    const canStart = can("session.manage") && !isArchived && agent.latest_version !== null;
    const actions = [
      canStart && button("New session", newSession, { class: "primary", title: "New session with this agent" }),
      canChange && !isArchived && button("New version", () => navigate(`${path}/edit`)),
      canChange && button("Rename", () => redrawAfter(renameDialog("agent", agent, change))),
      canChange && button(isArchived ? "Unarchive" : "Archive", () => redrawAfter(archiveDialog("agent", agent, change))),
    ];
    return [
      el("p", { class: "crumbs" }, el("a", { href: "#/agents" }, "All agents")),
      view.title(visibleName(agent.name), el("div", { class: "buttons" }, actions)),
    ];
  }

  async function newSession() {
    const session = await createSession(view.signal, agent);
    if (session !== null) navigate(`/sessions/${session.id}?new`);
  }

  async function change(body, message) {
    agent = await patch(path, body, view.signal);
    notice(message);
  }

  async function redrawAfter(dialog) {
    if ((await dialog) !== null && !view.signal.aborted) draw();
  }

  function versions() {
    const hint = canChange ? "Create a version so that sessions can use this agent." : "Creating a version requires the permission agent.manage.";
    const empty = () => emptyState("No versions", el("p", {}, hint));
    return pagedTable({ caption: "Versions", columns: versionColumns(agent, use), path: `${path}/versions`, signal: view.signal, empty });
  }

  draw();
}

function details(agent, use) {
  const now = agent.latest_version !== null && agent.default_version === null ? `, now version ${agent.latest_version}` : "";
  return el(
    "dl",
    { class: "facts card" },
    el("dt", {}, "Version in use"),
    el(
      "dd",
      {},
      (versionChoice(agent) ?? "No versions") + now,
      agent.latest_version !== null && el("span", { class: "hint-line" }, "Sessions can pin their own version. A run keeps the version it has started with."),
      use && agent.default_version !== null && el("button", { class: "small", type: "button", on: { click: () => use(null) } }, "Use latest"),
    ),
    el("dt", {}, "Created"),
    el("dd", {}, relativeTime(agent.created_at), ` by ${userName(agent.created_by)}`),
    el("dt", {}, "ID"),
    el("dd", {}, el("code", {}, agent.id), " ", copyButton(agent.id, "agent ID")),
  );
}
