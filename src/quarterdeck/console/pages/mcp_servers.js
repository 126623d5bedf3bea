// The MCP servers of the workspace.

import { can } from "../credential.js";
import { el, fill } from "../dom.js";
import { addServer } from "../mcp/server_dialogs.js";
import { serverState } from "../mcp/server_state.js";
import { emptyState, missingPermission } from "../notices.js";
import { navigate, replaceQuery } from "../router.js";
import { pagedTable } from "../tables.js";
import { relativeTime } from "../time_format.js";
import { userName } from "../users.js";
import { visibleName, visibleText } from "../visible_text.js";

const COLUMNS = [
  { name: "Name", class: "short", cell: (server) => el("a", { class: "name", href: `#/mcp-servers/${server.id}` }, visibleName(server.name)) },
  { name: "Connection", cell: (server) => el("span", { class: "mono" }, visibleText(server.url ?? server.command)) },
  { name: "Tools", class: "number", cell: (server) => (server.tool_count > 0 ? server.tool_count.toLocaleString("en") : el("span", { class: "muted" }, "–")) },
  { name: "Last check", class: "short", cell: lastCheck },
  { name: "Created", class: "short", cell: (server) => relativeTime(server.created_at) },
  { name: "Created by", class: "short", cell: (server) => userName(server.created_by) },
];

export async function show(view) {
  const addButton = can("agent.manage") && el("button", { class: "primary", type: "button", on: { click: add } }, "Add MCP server");
  fill(
    view.main,
    view.title("MCP servers", addButton),
    el("p", { class: "muted" }, "MCP servers give tools to agents. Their tools ask before each call unless the tool policy allows them."),
    can("workspace.read")
      ? pagedTable({ caption: "MCP servers", columns: COLUMNS, path: "/mcp-servers", signal: view.signal, empty })
      : missingPermission("MCP servers", "workspace.read"),
  );
  if (view.query.has("new") && addButton) {
    replaceQuery({});
    // After the heading has received the focus, to which the dialog returns it.
    setTimeout(add);
  }

  async function add() {
    const server = await addServer(view.signal);
    if (server !== null && !view.signal.aborted) navigate(`/mcp-servers/${server.id}?check`);
  }
}

function lastCheck(server) {
  return el("div", {}, serverState(server), server.checked_at !== null && el("div", { class: "muted small-text" }, relativeTime(server.checked_at)));
}

function empty() {
  const hint = can("agent.manage") ? "Add one by its URL to see which tools it offers." : "Adding one requires the permission agent.manage.";
  return emptyState("No MCP servers yet", el("p", {}, hint));
}
