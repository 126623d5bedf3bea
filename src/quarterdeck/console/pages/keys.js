// The keys of the workspace: who holds what, since when, until when.

import { get } from "../api.js";
import { can, whoami } from "../credential.js";
import { el, fill } from "../dom.js";
import { createKey, revokeKey, rotateKey } from "../keys/changes.js";
import { emptyBox, lackingBox } from "../notices.js";
import { person } from "../people.js";
import { pagedTable, tableRow } from "../tables.js";
import { when } from "../times.js";
import { named } from "../visible.js";

const SOON_MS = 7 * 86_400_000;

export async function show(view) {
  const columns = [
    { name: "Key", class: "key-name", cell: keyName },
    { name: "Permissions", cell: permissions },
    { name: "Created", class: "key-made", cell: created },
    { name: "Last used", cell: (key) => when(key.last_used_at) },
    { name: "Expires", cell: (key) => when(key.expires_at) },
    { name: "State", cell: state },
  ];
  if (can("key.manage")) columns.push({ name: "Actions", class: "actions", cell: actions });

  const create = el("button", { class: "primary", type: "button", on: { click: creating } }, "Create key");
  const list = can("workspace.read")
    ? pagedTable({ caption: "API keys", columns, path: "/api-keys", signal: view.signal, row: attributes, empty: nothing })
    : lackingBox("the list of keys", "workspace.read");
  // Not by disabling the button: it would lose the focus, which comes back to it from the form.
  let isAsking = false;
  fill(
    view.main,
    view.title("API keys", can("key.manage") && create),
    el("p", { class: "quiet" }, "A key speaks for the person who made it, in this workspace, within its permissions."),
    list,
  );

  async function creating() {
    // The server has the last word; what it says in time is offered from the start.
    if (isAsking) return;
    isAsking = true;
    const workspace = can("workspace.read") ? await get("/workspace", {}, view.signal).catch(() => null) : null;
    isAsking = false;
    if (view.signal.aborted) return;
    const created = await createKey(workspace?.max_key_days ?? null);
    if (created !== null && !view.signal.aborted) put(created).focus();
  }

  async function rotating(key) {
    const done = await rotateKey(key);
    if (done === null) return;
    // The frame names the key that is signed in.
    if (done.isOwn) return window.dispatchEvent(new Event("hashchange"));
    if (view.signal.aborted) return;
    if (done.old !== null) put(done.old);
    put(done.created).focus();
  }

  async function revoking(key) {
    const revoked = await revokeKey(key);
    if (revoked === null) return;
    if (key.id === whoami()?.id) window.dispatchEvent(new Event("quarterdeck:sign-out"));
    else if (!view.signal.aborted) put(revoked).focus();
  }

  /** Shows a key as it is now, on top if it is new. */
  function put(key) {
    const made = tableRow(columns, key, attributes);
    const before = list.querySelector(`[data-id="${key.id}"]`);
    if (before) before.replaceWith(made);
    else list.querySelector("tbody")?.prepend(made);
    return made;
  }

  function actions(key) {
    if (hasEnded(key)) return null;
    return [action("Rotate", key, rotating), action("Revoke", key, revoking)];
  }

  function nothing() {
    return emptyBox("No keys yet", el("p", {}, "Create one for each program and each person that calls the API."));
  }
}

function attributes(key) {
  return { "data-id": key.id, tabindex: "-1", class: hasEnded(key) ? "ended" : null };
}

function keyName(key) {
  return el(
    "div",
    {},
    el("strong", {}, named(key.label)),
    key.id === whoami().id && [" ", el("span", { class: "tag run" }, "signed in")],
    el("div", {}, el("code", {}, `${key.prefix}…`)),
  );
}

function created(key) {
  return el("div", {}, when(key.created_at), el("div", { class: "quiet small-text" }, "by ", person(key.created_by)));
}

function permissions(key) {
  if (key.permissions.length === 0) return el("span", { class: "quiet" }, "none");
  return el("ul", { class: "tags" }, key.permissions.map((name) => el("li", { class: "tag" }, name)));
}

function state(key) {
  if (key.revoked_at !== null) return el("div", {}, tag("revoked", "bad"), " ", when(key.revoked_at));
  if (hasEnded(key)) return tag("expired", "bad");
  const endsSoon = key.expires_at !== null && new Date(key.expires_at) - Date.now() < SOON_MS;
  return endsSoon ? tag("ends soon", "warn") : tag("active", "good");
}

function hasEnded(key) {
  return key.revoked_at !== null || (key.expires_at !== null && new Date(key.expires_at) <= Date.now());
}

function tag(word, kind) {
  return el("span", { class: `tag ${kind}` }, word);
}

function action(word, key, act) {
  return el("button", { class: "small", type: "button", "aria-label": `${word} ${named(key.label)}`, on: { click: () => act(key) } }, word);
}
