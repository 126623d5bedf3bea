// Creating, rotating and revoking: each asks first and shows what came of it.

import { call, freshKey, get, post } from "../api.js";
import { can, keep, signedIn, whoami } from "../credential.js";
import { field, formDialog } from "../dialogs.js";
import { el, freshId } from "../dom.js";
import { notice } from "../notices.js";
import { exact } from "../times.js";
import { named } from "../visible.js";
import { expiryChoice, limitOf } from "./expiry.js";
import { PERMISSIONS } from "./permissions.js";
import { showSecret, tellLost } from "./secret.js";

const HOUR_SECONDS = 3600;
const OVERLAPS = [
  [0, "Not at all", "The old secret and the session tokens it made end at once."],
  [HOUR_SECONDS, "1 hour"],
  [24 * HOUR_SECONDS, "1 day"],
  [7 * 24 * HOUR_SECONDS, "7 days"],
];
const USUAL_OVERLAP = 24 * HOUR_SECONDS;

/** The new key, or null. `maxDays`: how long the workspace lets keys live. */
export async function createKey(maxDays) {
  const now = Date.now();
  const limit = limitOf(maxDays, whoami().expires_at, now);
  const expiry = expiryChoice(limit, whyLimited(maxDays, limit), now);
  const send = sentOnce("/api-keys");
  const created = await formDialog({
    title: "Create a key",
    fields: [
      field("Label", el("input", { name: "label", required: true, maxlength: "200", autocomplete: "off" }), "Who or what will use it."),
      permissionChoice(),
      expiry.node,
    ],
    confirm: "Create key",
    async act(data) {
      const permissions = data.getAll("permission");
      if (permissions.length === 0) throw new Error("Choose at least one permission: a key without any opens nothing.");
      return send({ label: data.get("label").trim(), permissions, expires_at: expiry.chosen(data) });
    },
  });
  if (created === null) return null;
  await (created.secret ? showSecret(created) : tellLost(created));
  return withoutSecret(created);
}

/** The old key as it is now and the new one, or null. */
export async function rotateKey(key) {
  const isOwn = key.id === whoami().id;
  const send = sentOnce(`/api-keys/${key.id}/rotate`);
  const created = await formDialog({
    title: `Rotate “${named(key.label)}”?`,
    fields: [
      el("p", {}, "A new key with the same label, permissions and expiry takes the place of ", el("code", {}, `${key.prefix}…`), "."),
      overlapChoice(),
      isOwn && el("p", { class: "caution" }, "You are signed in with this key. This tab goes on with the new one."),
    ],
    confirm: "Rotate key",
    act: (data) => send({ overlap_seconds: Number(data.get("overlap")) }),
  });
  if (created === null) return null;
  // With the new secret first: the old one may have ended.
  if (isOwn && created.secret) keep(created.secret);
  const old = await get(`/api-keys/${key.id}`).catch(() => null);
  const more = old && el("p", {}, "The old key ", el("code", {}, `${old.prefix}…`), " ", ending(old));
  await (created.secret ? showSecret(created, more) : tellLost(created, more));
  // Asked anew when the page is shown the next time.
  if (isOwn && created.secret) signedIn(null);
  return { old, created: withoutSecret(created), isOwn };
}

/** The key as it is now, or null. */
export async function revokeKey(key) {
  const isOwn = key.id === whoami().id;
  const revoked = await formDialog({
    title: `Revoke “${named(key.label)}”?`,
    fields: [
      el("p", {}, "The key ", el("code", {}, `${key.prefix}…`), " ends at once, and with it every session token that it made. Requests with them are refused and open streams close."),
      el("p", {}, "This cannot be taken back."),
      isOwn && el("p", { class: "caution" }, "You are signed in with this key: you will have to sign in with another."),
    ],
    confirm: "Revoke key",
    danger: true,
    act: () => post(`/api-keys/${key.id}/revoke`),
  });
  if (revoked !== null && !isOwn) notice(`“${named(key.label)}” is revoked.`);
  return revoked;
}

/** Sends what a form holds. Sent again unchanged, after an answer that was lost, it is the same request: no second key. */
function sentOnce(path) {
  let sent = null;
  let key = null;
  return (body) => {
    const text = JSON.stringify(body);
    if (text !== sent) [sent, key] = [text, freshKey()];
    return call("POST", path, { body, key });
  };
}

function withoutSecret({ secret, ...shown }) {
  return shown;
}

function ending(key) {
  if (key.revoked_at !== null) return "has ended.";
  return key.expires_at === null ? "goes on working." : `goes on working until ${exact(key.expires_at)}.`;
}

function whyLimited(maxDays, limit) {
  if (limit === null) return null;
  const own = whoami().expires_at;
  if (own !== null && new Date(own).getTime() === limit) return "A key cannot outlive the one that you are signed in with.";
  return `Keys of this workspace live ${maxDays} days at most.`;
}

function permissionChoice() {
  const choices = PERMISSIONS.map(([name, sentence]) => {
    const allowed = can(name);
    const hint = freshId("hint");
    const box = el("input", {
      type: "checkbox", name: "permission", value: name, id: freshId("permission"), "aria-describedby": hint,
      disabled: !allowed, checked: allowed && name === "workspace.read",
    });
    return el(
      "div",
      { class: "choice" },
      box,
      el(
        "div",
        {},
        el("label", { for: box.id, class: "mono" }, name),
        el("p", { class: "hint", id: hint }, sentence, !allowed && " Your own key lacks it, so it cannot give it."),
      ),
    );
  });
  return el("fieldset", { class: "permissions" }, el("legend", {}, "Permissions"), choices);
}

function overlapChoice() {
  const choices = OVERLAPS.map(([seconds, words, hint]) => {
    const radio = el("input", { type: "radio", name: "overlap", value: String(seconds), id: freshId("overlap"), checked: seconds === USUAL_OVERLAP });
    return el("div", { class: "choice" }, radio, el("div", {}, el("label", { for: radio.id }, words), hint && el("p", { class: "hint" }, hint)));
  });
  return el("fieldset", {}, el("legend", {}, "How long the old secret goes on working"), choices);
}
