// The API keys of the workspace.

import { get } from "../api.js";
import { can, whoami } from "../credential.js";
import { el, fill } from "../dom.js";
import { createKey, revokeKey, rotateKey } from "../keys/key_dialogs.js";
import { trustedJobsSection } from "../keys/trusted_jobs.js";
import { PERMISSIONS } from "../keys/permissions.js";
import { emptyState, missingPermission } from "../notices.js";
import { replaceQuery } from "../router.js";
import { pagedTable, tableRow } from "../tables.js";
import { relativeTime } from "../time_format.js";
import { userLabel } from "../users.js";
import { visibleName } from "../visible_text.js";

const EXPIRES_SOON_MS = 7 * 86_400_000;

export async function show(view) {
  const columns = [
    { name: "Key", class: "key-name", cell: keyName },
    { name: "Permissions", cell: permissions },
    { name: "Created", class: "short", cell: created },
    { name: "Last used", class: "short", cell: (key) => relativeTime(key.last_used_at) },
    { name: "Expires", class: "short", cell: (key) => relativeTime(key.expires_at) },
    { name: "State", class: "short", cell: state },
  ];
  if (can("key.manage")) columns.push({ name: "Actions", class: "actions", cell: actions });

  const createButton = el("button", { class: "primary", type: "button", on: { click: create } }, "Create key");
  const list = can("workspace.read")
    ? pagedTable({ caption: "API keys", columns, path: "/api-keys", signal: view.signal, row: rowAttributes, empty })
    : missingPermission("API keys", "workspace.read");
  // The button is not disabled meanwhile: it would lose the focus, which the dialog returns to it.
  let isCreating = false;
  fill(
    view.main,
    view.title("API keys", can("key.manage") && createButton),
    el("p", { class: "muted" }, "A key acts on behalf of the user who created it, limited to its permissions."),
    list,
    can("workspace.read") && trustedJobsSection(view.signal),
  );

  if (view.query.has("new") && can("key.manage")) {
    replaceQuery({});
    // After the heading has received the focus, to which the dialog returns it.
    setTimeout(create);
  }

  async function create() {
    if (isCreating) return;
    isCreating = true;
    // The maximum lifetime only limits the choices; the server checks it.
    const workspace = can("workspace.read") ? await get("/workspace", {}, view.signal).catch(() => null) : null;
    isCreating = false;
    if (view.signal.aborted) return;
    const key = await createKey(workspace?.max_key_days ?? null);
    if (key !== null && !view.signal.aborted) updateRow(key).focus();
  }

  async function rotate(key) {
    const result = await rotateKey(key);
    if (result === null) return;
    // Redraw everything: the layout shows the key in use.
    if (result.isOwn) return window.dispatchEvent(new Event("hashchange"));
    if (view.signal.aborted) return;
    if (result.old !== null) updateRow(result.old);
    updateRow(result.created).focus();
  }

  async function revoke(key) {
    const revoked = await revokeKey(key);
    if (revoked === null) return;
    if (key.id === whoami()?.id) window.dispatchEvent(new Event("quarterdeck:sign-out"));
    else if (!view.signal.aborted) updateRow(revoked).focus();
  }

  /** Replaces the row of a key, or adds a new key at the top. */
  function updateRow(key) {
    const row = tableRow(columns, key, rowAttributes);
    const old = list.querySelector(`[data-id="${key.id}"]`);
    if (old) old.replaceWith(row);
    else list.querySelector("tbody")?.prepend(row);
    return row;
  }

  function actions(key) {
    if (hasEnded(key)) return null;
    return [actionButton("Rotate", key, rotate), actionButton("Revoke", key, revoke)];
  }
}

function empty() {
  return emptyState("No API keys yet", el("p", {}, "Create a separate key for each person and program that uses the API."));
}

function rowAttributes(key) {
  return { "data-id": key.id, tabindex: "-1", class: hasEnded(key) ? "ended" : null };
}

function keyName(key) {
  return el(
    "div",
    {},
    el("span", { class: "name" }, visibleName(key.label)),
    key.id === whoami().id && [" ", tag("This key", "run")],
    el("div", {}, el("code", {}, `${key.prefix}…`)),
  );
}

function created(key) {
  return el("div", {}, relativeTime(key.created_at), el("div", { class: "muted small-text" }, "by ", userLabel(key.created_by)));
}

function permissions(key) {
  if (key.permissions.length === 0) return el("span", { class: "muted" }, "None");
  if (key.permissions.length === PERMISSIONS.length) return el("span", { class: "tag", title: key.permissions.join(", ") }, "All permissions");
  return el("ul", { class: "tags" }, key.permissions.map((name) => el("li", { class: "tag" }, name)));
}

function state(key) {
  if (key.revoked_at !== null) return el("div", {}, tag("Revoked", "bad"), el("div", { class: "muted small-text" }, relativeTime(key.revoked_at)));
  if (hasEnded(key)) return tag("Expired", "bad");
  const expiresSoon = key.expires_at !== null && Date.parse(key.expires_at) - Date.now() < EXPIRES_SOON_MS;
  return expiresSoon ? tag("Expires soon", "warn") : tag("Active", "good");
}

function hasEnded(key) {
  return key.revoked_at !== null || (key.expires_at !== null && Date.parse(key.expires_at) <= Date.now());
}

function tag(label, tone) {
  return el("span", { class: `tag ${tone}` }, label);
}

function actionButton(label, key, act) {
  return el("button", { class: "small", type: "button", "aria-label": `${label} ${visibleName(key.label)}`, on: { click: () => act(key) } }, label);
}
