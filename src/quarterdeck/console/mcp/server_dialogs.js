// Dialogs that add, edit and delete an MCP server.

import { idempotentPost, listAll, patch, remove } from "../api.js";
import { field, formDialog } from "../dialogs.js";
import { el, fill } from "../dom.js";
import { notice } from "../notices.js";
import { segments } from "../segments.js";
import { visibleName } from "../visible_text.js";

const TRANSPORTS = [["url", "Streamable HTTP"], ["command", "stdio"]];

/** Returns the new server, or null. */
export function addServer(signal) {
  const send = idempotentPost("/mcp-servers");
  const { fields, body } = serverFields({ name: "", url: "", command: null, credential_id: null }, signal);
  return formDialog({ title: "Add MCP server", fields, confirm: "Add server", act: (data) => send(body(data)) });
}

/** Returns the changed server, or null. */
export async function editServer(server, signal) {
  const { fields, body } = serverFields(server, signal);
  const changed = await formDialog({ title: "Edit MCP server", fields, confirm: "Save", act: (data) => patch(`/mcp-servers/${server.id}`, changes(server, body(data))) });
  if (changed !== null) notice("MCP server saved.");
  return changed;
}

/** Returns whether the server was deleted. */
export async function deleteServer(server) {
  const done = await formDialog({
    title: `Delete “${visibleName(server.name)}”?`,
    fields: el("p", {}, "Agents and sessions that name this server continue without its tools. This can't be undone."),
    confirm: "Delete server",
    danger: true,
    act: () => remove(`/mcp-servers/${server.id}`),
  });
  if (done !== null) notice("MCP server deleted.");
  return done !== null;
}

/** Only what has changed. */
function changes(server, values) {
  return Object.fromEntries(Object.entries(values).filter(([name, value]) => value !== server[name]));
}

/** Returns `{fields, body(data)}`. Exactly one of `url` and `command` is set; only a URL has a credential. */
function serverFields(server, signal) {
  const name = el("input", {
    name: "name", required: true, maxlength: 32, value: server.name, autocomplete: "off", spellcheck: "false", autofocus: true,
    pattern: "[a-z0-9][a-z0-9\\-]*", title: "Small letters, digits and -; the first is a letter or a digit",
  });
  const url = el("input", { name: "url", type: "url", maxlength: 2000, value: server.url ?? "", placeholder: "https://", autocomplete: "off", spellcheck: "false" });
  const command = el("input", { name: "command", maxlength: 200, value: server.command ?? "", autocomplete: "off", spellcheck: "false" });
  const transport = segments("Connection", TRANSPORTS, server.command === null ? "url" : "command", draw);
  const urlFields = el("div", {}, field("URL", url, "A public HTTPS address that speaks streamable HTTP."), credentialField(server.credential_id, signal));
  const commandFields = el("div", {}, field("Command", command, "The name of a command in the configuration of the operator. It runs in a sandbox."));
  function draw() {
    const isUrl = transport.value() === "url";
    urlFields.hidden = !isUrl;
    commandFields.hidden = isUrl;
    url.required = isUrl;
    command.required = !isUrl;
  }
  draw();
  return {
    fields: [
      field("Name", name, "The tools of the server are called name__tool."),
      el("div", { class: "field" }, transport.node),
      urlFields,
      commandFields,
    ],
    body(data) {
      const isUrl = transport.value() === "url";
      return {
        name: data.get("name").trim(),
        url: isUrl ? data.get("url").trim() : null,
        command: isUrl ? null : data.get("command").trim(),
        credential_id: isUrl ? data.get("credential_id") || null : null,
      };
    },
  };
}

function credentialField(selected, signal) {
  const select = el("select", { name: "credential_id" }, el("option", { value: "" }, "None"), selected && el("option", { value: selected, selected: true }, selected));
  load();
  return field("Credential", select, ["Create credentials on the page ", el("a", { href: "#/credentials", target: "_blank", rel: "noopener" }, "Credentials"), "."]);

  async function load() {
    try {
      const credentials = await Array.fromAsync(listAll("/credentials", {}, signal));
      const chosen = select.value;
      const options = credentials.map((one) => el("option", { value: one.id, selected: one.id === chosen }, visibleName(one.name)));
      fill(select, el("option", { value: "" }, "None"), options);
    } catch {
      // The current choice can be kept.
    }
  }
}
