// The list of agents.

import { modelName } from "../agents/versions.js";
import { can, reasonAgainst } from "../credential.js";
import { el, fill } from "../dom.js";
import { emptyState, missingPermission } from "../notices.js";
import { navigate, replaceQuery } from "../router.js";
import { pagedTable } from "../tables.js";
import { relativeTime } from "../time_format.js";
import { userName } from "../users.js";
import { versionChoice } from "../versions.js";
import { visibleName } from "../visible_text.js";

const COLUMNS = [
  { name: "Name", class: "skill-name", cell: (agent) => el("a", { href: `#/agents/${agent.id}` }, el("bdi", {}, visibleName(agent.name))) },
  { name: "Model", cell: (agent) => (agent.latest_version === null ? el("span", { class: "muted" }, "–") : modelName(agent)) },
  { name: "Version in use", class: "short", cell: (agent) => versionChoice(agent) ?? el("span", { class: "muted" }, "No versions") },
  { name: "Latest", class: "short", cell: (agent) => agent.latest_version ?? "–" },
  { name: "Created by", class: "short", cell: (agent) => userName(agent.created_by) },
  { name: "Created", class: "short", cell: (agent) => relativeTime(agent.created_at) },
];

export async function show(view) {
  const canChange = can("agent.manage");
  if (!can("workspace.read")) {
    fill(view.main, view.title("Agents"), missingPermission("agents", "workspace.read"));
    return;
  }
  const list = el("div", {});
  const archived = el("input", { type: "checkbox", role: "switch", checked: view.query.get("archived") === "true", on: { change: load } });
  const create = el("button", { class: "primary", type: "button", disabled: !canChange, on: { click: () => navigate("/agents/new") } }, "New agent");

  function load() {
    const query = { archived: archived.checked };
    replaceQuery(query.archived ? { archived: true } : {});
    const empty = () => (query.archived ? emptyState("No archived agents") : noAgents());
    fill(list, pagedTable({ caption: "Agents", columns: COLUMNS, path: "/agents", query, signal: view.signal, empty }));
  }

  fill(
    view.main,
    view.title("Agents", create),
    canChange
      ? el("p", { class: "muted" }, "An agent has a model, instructions, skills and tools in numbered versions. Sessions use it instead of repeating them.")
      : el("p", { class: "muted" }, `Read-only: ${reasonAgainst("agent.manage")}`),
    el("div", { class: "toolbar" }, el("label", { class: "choice switch" }, archived, "Show archived")),
    list,
  );
  load();
}

function noAgents() {
  return emptyState(
    "No agents yet",
    el("p", {}, "An agent is a model with instructions, skills, tools and limits that many sessions share."),
    el("p", {}, "Create one here, or run ", el("code", {}, "qd agents init"), " to keep it in a folder."),
  );
}
