// Dialogs that create, rotate and revoke a key.

import { get, idempotentPost, post } from "../api.js";
import { can, profile, setCaller, storeSecret, whoami } from "../credential.js";
import { field, formDialog } from "../dialogs.js";
import { el, uniqueId } from "../dom.js";
import { notice } from "../notices.js";
import { formatDateTime } from "../time_format.js";
import { visibleName } from "../visible_text.js";
import { expiryField, expiryLimit } from "./expiry.js";
import { PERMISSIONS } from "./permissions.js";
import { showLostSecret, showSecret } from "./secret_dialog.js";

const HOUR_SECONDS = 3600;
const OVERLAPS = [
  [0, "Revoke immediately", "The old key and the session tokens it created stop working at once."],
  [HOUR_SECONDS, "1 hour"],
  [24 * HOUR_SECONDS, "1 day"],
  [7 * 24 * HOUR_SECONDS, "7 days"],
];
const DEFAULT_OVERLAP = 24 * HOUR_SECONDS;

/** Returns the new key, or null. `maxDays` is the maximum key lifetime of the workspace. */
export async function createKey(maxDays) {
  const now = Date.now();
  const limit = expiryLimit(maxDays, whoami().expires_at, now);
  const expiry = expiryField(limit, limitHint(maxDays, limit), now);
  const send = idempotentPost("/api-keys");
  const created = await formDialog({
    title: "Create key",
    fields: [
      field("Label", el("input", { name: "label", required: true, maxlength: "200", autocomplete: "off" }), "The person or program that will use this key."),
      permissionsField(),
      expiry.node,
    ],
    confirm: "Create key",
    async act(data) {
      const permissions = data.getAll("permission");
      if (permissions.length === 0) throw new Error("Select at least one permission.");
      return send({ label: data.get("label").trim(), permissions, expires_at: expiry.value(data) });
    },
  });
  if (created === null) return null;
  await (created.secret ? showSecret(created) : showLostSecret(created));
  return withoutSecret(created);
}

/** Returns the old and the new key, or null. */
export async function rotateKey(key) {
  const isOwn = key.id === whoami().id;
  const send = idempotentPost(`/api-keys/${key.id}/rotate`);
  const created = await formDialog({
    title: `Rotate “${visibleName(key.label)}”?`,
    fields: [
      el("p", {}, "This creates a new key with the same label, permissions and expiry to replace ", el("code", {}, `${key.prefix}…`), "."),
      overlapField(),
      isOwn && el("p", { class: "caution" }, "You are signed in with this key. This tab will switch to the new key."),
    ],
    confirm: "Rotate key",
    act: (data) => send({ overlap_seconds: Number(data.get("overlap")) }),
  });
  if (created === null) return null;
  // Switch before the next request: the old key may already be revoked.
  if (isOwn && created.secret) storeSecret(created.secret);
  const old = await get(`/api-keys/${key.id}`).catch(() => null);
  const details = old && el("p", {}, "The old key ", el("code", {}, `${old.prefix}…`), " ", remainingLife(old));
  await (created.secret ? showSecret(created, details) : showLostSecret(created, details));
  // Loaded again for the new key when the next page is shown.
  if (isOwn && created.secret) setCaller(null);
  return { old, created: withoutSecret(created), isOwn };
}

/** Returns the revoked key, or null. */
export async function revokeKey(key) {
  const isOwn = key.id === whoami().id;
  const revoked = await formDialog({
    title: `Revoke “${visibleName(key.label)}”?`,
    fields: [
      el("p", {}, "The key ", el("code", {}, `${key.prefix}…`), " and all session tokens it created stop working immediately. Open event streams are closed."),
      el("p", {}, "This can't be undone."),
      isOwn && el("p", { class: "caution" }, "You are signed in with this key. You will have to sign in with another one."),
    ],
    confirm: "Revoke key",
    danger: true,
    act: () => post(`/api-keys/${key.id}/revoke`),
  });
  if (revoked !== null && !isOwn) notice(`“${visibleName(key.label)}” was revoked.`);
  return revoked;
}

function withoutSecret({ secret, ...rest }) {
  return rest;
}

function remainingLife(key) {
  if (key.revoked_at !== null) return "is revoked.";
  return key.expires_at === null ? "remains valid." : `remains valid until ${formatDateTime(key.expires_at)}.`;
}

function limitHint(maxDays, limit) {
  if (limit === null) return null;
  const own = whoami().expires_at;
  if (own !== null && new Date(own).getTime() === limit) return "A key can't outlive the key you are signed in with.";
  return `Maximum key lifetime in this workspace: ${maxDays} days.`;
}

function permissionsField() {
  const choices = PERMISSIONS.map(([name, description]) => {
    const isAllowed = can(name);
    const hintId = uniqueId("hint");
    const box = el("input", {
      type: "checkbox", name: "permission", value: name, id: uniqueId("permission"), "aria-describedby": hintId,
      disabled: !isAllowed, checked: isAllowed && name === "workspace.read",
    });
    return el(
      "div",
      { class: "choice" },
      box,
      el(
        "div",
        {},
        el("label", { for: box.id, class: "mono" }, name),
        el("p", { class: "hint", id: hintId }, description, !isAllowed && ` Your ${profile() === null ? "key" : "role"} doesn't have this permission.`),
      ),
    );
  });
  return el("fieldset", { class: "permissions" }, el("legend", {}, "Permissions"), choices);
}

function overlapField() {
  const choices = OVERLAPS.map(([seconds, label, hint]) => {
    const radio = el("input", { type: "radio", name: "overlap", value: String(seconds), id: uniqueId("overlap"), checked: seconds === DEFAULT_OVERLAP });
    return el("div", { class: "choice" }, radio, el("div", {}, el("label", { for: radio.id }, label), hint && el("p", { class: "hint" }, hint)));
  });
  return el("fieldset", {}, el("legend", {}, "Keep the old key valid for"), choices);
}
