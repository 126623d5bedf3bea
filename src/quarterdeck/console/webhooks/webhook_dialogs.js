// Dialogs that create, edit, rotate and delete a webhook.

import { idempotentPost, patch, remove } from "../api.js";
import { copyButton } from "../clipboard.js";
import { field, formDialog, messageDialog } from "../dialogs.js";
import { el, uniqueId } from "../dom.js";
import { notice } from "../notices.js";
import { visibleName } from "../visible_text.js";

const EVENTS = [
  ["run.succeeded", "A run has completed."],
  ["run.failed", "A run has failed."],
  ["run.cancelled", "A run was cancelled."],
  ["action.required", "A run waits for an answer."],
  ["action.resolved", "A request was answered, has expired or was cancelled."],
];
const HOUR_SECONDS = 3600;
const OVERLAPS = [
  [0, "Replace immediately"],
  [HOUR_SECONDS, "1 hour"],
  [24 * HOUR_SECONDS, "1 day"],
  [7 * 24 * HOUR_SECONDS, "7 days"],
];
const DEFAULT_OVERLAP = 24 * HOUR_SECONDS;

/** The description, or the URL if there is none. */
export function webhookName(webhook) {
  return visibleName(webhook.description ?? webhook.url);
}

/** Returns the new webhook, or null. */
export async function createWebhook() {
  const send = idempotentPost("/webhooks");
  const created = await formDialog({
    title: "Create webhook",
    fields: webhookFields({ url: "", description: "", events: EVENTS.map(([name]) => name) }),
    confirm: "Create webhook",
    act: (data) => send(requestBody(data)),
  });
  if (created === null) return null;
  await (created.secret ? showSecret(created, "Webhook created") : showLostSecret());
  return created;
}

/** Returns the changed webhook, or null. */
export function editWebhook(webhook) {
  return formDialog({
    title: "Edit webhook",
    fields: webhookFields(webhook),
    confirm: "Save",
    act: (data) => patch(`/webhooks/${webhook.id}`, requestBody(data)),
  });
}

/** Returns the changed webhook, or null. */
export async function rotateSecret(webhook) {
  const send = idempotentPost(`/webhooks/${webhook.id}/rotate-secret`);
  const changed = await formDialog({
    title: "Rotate signing secret?",
    fields: [
      el("p", {}, "This creates a new signing secret. Until the old one expires, each delivery is signed with both, so you can update your receiver without losing deliveries."),
      overlapField(),
    ],
    confirm: "Rotate secret",
    act: (data) => send({ overlap_seconds: Number(data.get("overlap")) }),
  });
  if (changed === null) return null;
  await (changed.secret ? showSecret(changed, "Secret rotated") : showLostSecret());
  return changed;
}

/** Returns the changed webhook, or null. */
export async function setEnabled(webhook, enabled) {
  const changed = await formDialog({
    title: enabled ? "Enable webhook?" : "Disable webhook?",
    fields: el("p", {}, enabled ? "Events from now on are delivered again." : "Nothing is delivered while the webhook is disabled. Deliveries that are due meanwhile fail."),
    confirm: enabled ? "Enable" : "Disable",
    act: () => patch(`/webhooks/${webhook.id}`, { enabled }),
  });
  if (changed !== null) notice(`Webhook ${enabled ? "enabled" : "disabled"}.`);
  return changed;
}

/** Returns whether the webhook was deleted. */
export async function deleteWebhook(webhook) {
  const done = await formDialog({
    title: "Delete webhook?",
    fields: el("p", {}, "This deletes ", el("strong", {}, webhookName(webhook)), " and its deliveries. This can't be undone."),
    confirm: "Delete webhook",
    danger: true,
    act: () => remove(`/webhooks/${webhook.id}`),
  });
  if (done !== null) notice("Webhook deleted.");
  return done !== null;
}

function requestBody(data) {
  const events = data.getAll("event");
  if (events.length === 0) throw new Error("Select at least one event.");
  return { url: data.get("url").trim(), description: data.get("description").trim() || null, events };
}

function webhookFields({ url, description, events }) {
  const urlInput = el("input", { name: "url", type: "url", required: true, maxlength: 2000, value: url, placeholder: "https://", autocomplete: "off", spellcheck: "false" });
  const descriptionInput = el("input", { name: "description", maxlength: 200, value: description ?? "", autocomplete: "off" });
  const choices = EVENTS.map(([name, hint]) => {
    const box = el("input", { type: "checkbox", name: "event", value: name, id: uniqueId("event"), checked: events.includes(name) });
    return el("div", { class: "choice" }, box, el("label", { for: box.id }, el("code", {}, name), " ", el("span", { class: "muted" }, hint)));
  });
  return [
    field("URL", urlInput, "A public HTTPS address that accepts POST requests."),
    field("Description", descriptionInput, "Optional."),
    el("fieldset", {}, el("legend", {}, "Events"), choices),
  ];
}

function overlapField() {
  const choices = OVERLAPS.map(([seconds, label]) => {
    const radio = el("input", { type: "radio", name: "overlap", value: String(seconds), id: uniqueId("overlap"), checked: seconds === DEFAULT_OVERLAP });
    return el("div", { class: "choice" }, radio, el("label", { for: radio.id }, label));
  });
  return el("fieldset", {}, el("legend", {}, "Keep the old secret valid for"), choices);
}

function showSecret(webhook, title) {
  const body = [
    el("p", {}, "Copy the signing secret now. You won't be able to see it again. Your receiver verifies deliveries with it."),
    el("div", { class: "secret" }, el("code", {}, webhook.secret), copyButton(webhook.secret, "secret")),
  ];
  return messageDialog({ title, body, confirm: "I've saved this secret", undismissable: true });
}

/** The change was made, but the response with the secret was lost. The response to a retry does not contain it. */
function showLostSecret() {
  const body = el("p", {}, "The connection failed before the new secret arrived. The secret can't be recovered: rotate it to get another one.");
  return messageDialog({ title: "Secret lost", body, confirm: "OK" });
}
