// The credentials that MCP servers need.

import { can } from "../credential.js";
import { createCredential, deleteCredential, rotateCredential } from "../credentials/credential_dialogs.js";
import { kindName, parametersOf } from "../credentials/kinds.js";
import { el, fill } from "../dom.js";
import { emptyState, missingPermission } from "../notices.js";
import { replaceQuery } from "../router.js";
import { pagedTable } from "../tables.js";
import { relativeTime } from "../time_format.js";
import { userName } from "../users.js";
import { visibleName } from "../visible_text.js";

export async function show(view) {
  const canManage = can("credential.manage");
  const columns = [
    { name: "Name", cell: (one) => el("span", { class: "name" }, visibleName(one.name)) },
    { name: "Kind", class: "short", cell: kindName },
    { name: "Parameters", cell: parametersOf },
    { name: "Created", class: "short", cell: created },
    { name: "Secret rotated", class: "short", cell: (one) => (one.rotated_at === null ? el("span", { class: "muted" }, "Never") : relativeTime(one.rotated_at)) },
  ];
  if (canManage) columns.push({ name: "Actions", class: "actions", cell: (one) => [button("Rotate", one, rotateCredential), button("Delete", one, deleteCredential)] });
  const createButton = el("button", { class: "primary", type: "button", on: { click: create } }, "Create credential");
  const list = el("div", {});
  fill(
    view.main,
    view.title("Credentials", canManage && createButton),
    el("p", { class: "muted" }, "Secrets that ", el("a", { href: "#/mcp-servers" }, "MCP servers"), " need. They are stored encrypted and never shown to agents, users or programs."),
    list,
  );
  load();
  if (view.query.has("new") && canManage) {
    replaceQuery({});
    // After the heading has received the focus, to which the dialog returns it.
    setTimeout(create);
  }

  function load() {
    const content = can("workspace.read")
      ? pagedTable({ caption: "Credentials", columns, path: "/credentials", signal: view.signal, empty })
      : missingPermission("credentials", "workspace.read");
    fill(list, content);
  }

  async function create() {
    if ((await createCredential()) !== null) reload();
  }

  /** The pressed button is replaced, so the focus moves to the heading. */
  function reload() {
    if (view.signal.aborted) return;
    load();
    view.main.querySelector("h1").focus();
  }

  function button(label, credential, dialog) {
    const click = async () => { if (await dialog(credential)) reload(); };
    return el("button", { class: "small", type: "button", "aria-label": `${label} ${visibleName(credential.name)}`, on: { click } }, label);
  }
}

function created(credential) {
  return el("div", {}, relativeTime(credential.created_at), el("div", { class: "muted small-text" }, `by ${userName(credential.created_by)}`));
}

function empty() {
  const hint = can("credential.manage") ? "Create one for each MCP server that asks for a token." : "Creating one requires the permission credential.manage.";
  return emptyState("No credentials yet", el("p", {}, hint));
}
