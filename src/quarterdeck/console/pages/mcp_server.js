// One MCP server: its connection, its last check and its tools.

import { get, listAll, post } from "../api.js";
import { copyButton } from "../clipboard.js";
import { can } from "../credential.js";
import { el, fill } from "../dom.js";
import { pluralize } from "../format.js";
import { deleteServer, editServer } from "../mcp/server_dialogs.js";
import { serverState } from "../mcp/server_state.js";
import { toolList } from "../mcp/tool_list.js";
import { emptyState, errorBox, missingPermission } from "../notices.js";
import { navigate, replaceQuery } from "../router.js";
import { relativeTime } from "../time_format.js";
import { userName } from "../users.js";
import { visibleLines, visibleName, visibleText } from "../visible_text.js";

export async function show(view, { id }) {
  if (!can("workspace.read")) {
    fill(view.main, view.title("MCP server"), missingPermission("MCP servers", "workspace.read"));
    return;
  }
  const path = `/mcp-servers/${encodeURIComponent(id)}`;
  let server = await get(path, {}, view.signal);
  if (view.signal.aborted) return;
  const canManage = can("agent.manage");
  const head = el("div", {});
  const tools = el("div", {});
  const status = el("div", { class: "check-status", role: "status" });
  const checkButton = el("button", { type: "button", class: "primary", on: { click: check } }, "Check");
  fill(view.main, head, status, el("div", { class: "section-head" }, el("h2", {}, "Tools")), tools);
  draw();
  // The server was just added.
  if (view.query.has("check")) {
    replaceQuery({});
    check();
  }

  function draw() {
    const button = (label, act, attributes = {}) => el("button", { type: "button", ...attributes, on: { click: act } }, label);
    const buttons = [checkButton, button("Edit", edit), button("Delete", destroy, { class: "danger-text" })];
    fill(
      head,
      el("p", { class: "crumbs" }, el("a", { href: "#/mcp-servers" }, "All MCP servers")),
      view.title(visibleName(server.name), canManage && el("div", { class: "buttons" }, buttons)),
      server.check_failure !== null && el("p", { class: "caution preformatted check-failure" }, `The last check failed: ${visibleLines(server.check_failure)}`),
      details(server, view.signal),
    );
    fill(tools, server.tools.length > 0 ? toolList(server.tools) : noTools(server));
  }

  async function edit() {
    const changed = await editServer(server, view.signal);
    if (changed === null || view.signal.aborted) return;
    server = await get(path, {}, view.signal);
    fill(status);
    draw();
    head.querySelector("h1").focus();
  }

  async function destroy() {
    if (await deleteServer(server)) navigate("/mcp-servers");
  }

  /** The button stays enabled, so that it keeps the focus. */
  async function check() {
    if (checkButton.getAttribute("aria-busy") === "true") return;
    checkButton.setAttribute("aria-busy", "true");
    fill(status, el("p", { class: "muted" }, "Connecting…"));
    try {
      const result = await post(`${path}/check`, undefined, view.signal);
      server = await get(path, {}, view.signal);
      draw();
      checkButton.focus();
      fill(status, checkResult(result));
    } catch (error) {
      if (!view.signal.aborted) fill(status, errorBox(error));
    }
    checkButton.removeAttribute("aria-busy");
  }
}

/** What the check found. The reason of a failure is shown with the server. */
function checkResult({ ok, tools, added, changed, removed }) {
  if (!ok) return el("p", {}, el("span", { class: "tag bad" }, "The check failed"));
  const names = (label, list) => list.length > 0 && el("p", {}, `${label}: `, list.map((name, index) => [index > 0 && ", ", el("code", {}, visibleName(name))]));
  return el(
    "div",
    { class: "push-result" },
    el("p", {}, el("strong", {}, `Connected: ${pluralize(tools.length, "tool")}.`), changed.length > 0 && " The new definitions are accepted."),
    names("New", added),
    names("Changed", changed),
    names("Removed", removed),
  );
}

function noTools(server) {
  const isChecked = server.checked_at !== null && server.check_failure === null;
  const text = isChecked ? "The server offers no tools." : "Check the server to see its tools.";
  return emptyState("No known tools", el("p", {}, text));
}

function details(server, signal) {
  const rows = [
    server.url !== null ? ["URL", [el("code", {}, visibleText(server.url)), " ", copyButton(server.url, "URL")]] : ["Command", el("code", {}, visibleText(server.command))],
    server.url !== null && ["Credential", server.credential_id === null ? "None" : credentialName(server.credential_id, signal)],
    ["Last check", [serverState(server), server.checked_at !== null && [" ", relativeTime(server.checked_at)]]],
    ["Created", [relativeTime(server.created_at), ` by ${userName(server.created_by)}`]],
    ["ID", [el("code", {}, server.id), " ", copyButton(server.id, "server ID")]],
  ];
  return el("dl", { class: "facts card" }, rows.filter(Boolean).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

/** The API has no request for one credential. */
function credentialName(id, signal) {
  const link = el("a", { href: "#/credentials" }, id);
  Array.fromAsync(listAll("/credentials", {}, signal)).then(
    (credentials) => {
      const found = credentials.find((one) => one.id === id);
      if (found) fill(link, visibleName(found.name));
    },
    () => {},
  );
  return link;
}
