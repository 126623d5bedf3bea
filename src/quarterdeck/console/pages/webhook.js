// One webhook: its settings and its deliveries.

import { get, post } from "../api.js";
import { copyButton } from "../clipboard.js";
import { can } from "../credential.js";
import { el, fill } from "../dom.js";
import { errorBox, missingPermission, notice } from "../notices.js";
import { navigate, replaceQuery } from "../router.js";
import { segments } from "../segments.js";
import { relativeTime } from "../time_format.js";
import { userName } from "../users.js";
import { visibleText } from "../visible_text.js";
import { deliveryList } from "../webhooks/deliveries.js";
import { webhookState } from "../webhooks/state.js";
import { deleteWebhook, editWebhook, rotateSecret, setEnabled, webhookName } from "../webhooks/webhook_dialogs.js";

const STATES = [["", "All"], ["pending", "Pending"], ["delivered", "Delivered"], ["failed", "Failed"]];

export async function show(view, { id }) {
  if (!can("workspace.read")) {
    fill(view.main, view.title("Webhook"), missingPermission("webhooks", "workspace.read"));
    return;
  }
  const path = `/webhooks/${encodeURIComponent(id)}`;
  let webhook = await get(path, {}, view.signal);
  if (view.signal.aborted) return;
  const canManage = can("key.manage");
  const head = el("div", {});
  const errorContainer = el("div", {});
  const deliveries = deliveryList(encodeURIComponent(id), canManage ? redeliver : null, view.signal);
  const stateChoice = segments("State", STATES, view.query.get("state") ?? "", filter);

  /** Draws the settings again after a change and returns the focus to the heading. */
  function draw() {
    fill(head, header(), notes(webhook), details(webhook));
    head.querySelector("h1").focus();
  }

  function header() {
    const button = (label, act, attributes = {}) => el("button", { type: "button", ...attributes, on: { click: act } }, label);
    const disabledHint = webhook.enabled ? null : "Enable the webhook first.";
    const buttons = [
      button("Send test", sendTest, { disabled: !webhook.enabled, title: disabledHint }),
      button("Edit", () => redrawAfter(editWebhook(webhook))),
      button("Rotate secret", () => redrawAfter(rotateSecret(webhook))),
      button(webhook.enabled ? "Disable" : "Enable", () => redrawAfter(setEnabled(webhook, !webhook.enabled))),
      button("Delete", destroy, { class: "danger-text" }),
    ];
    return [
      el("p", { class: "crumbs" }, el("a", { href: "#/webhooks" }, "All webhooks")),
      view.title(webhookName(webhook), canManage && el("div", { class: "buttons" }, buttons)),
    ];
  }

  async function redrawAfter(dialog) {
    const changed = await dialog;
    if (changed === null || view.signal.aborted) return;
    webhook = changed;
    draw();
    deliveries.load();
  }

  async function sendTest(event) {
    const button = event.currentTarget;
    button.disabled = true;
    await report(async () => {
      await post(`${path}/test`, undefined, view.signal);
      notice("Test sent. Its delivery is listed below.");
    });
    button.disabled = false;
  }

  function redeliver(delivery) {
    return report(async () => {
      await post(`${path}/deliveries/${delivery.id}/redeliver`, undefined, view.signal);
      notice("Redelivery scheduled.");
    });
  }

  /** Performs an action on the deliveries, then loads them again. */
  async function report(act) {
    fill(errorContainer);
    try {
      await act();
      await deliveries.load();
    } catch (error) {
      if (!view.signal.aborted) fill(errorContainer, errorBox(error));
    }
  }

  async function destroy() {
    if (await deleteWebhook(webhook)) navigate("/webhooks");
  }

  function filter() {
    const state = stateChoice.value();
    replaceQuery(state ? { state } : {});
    deliveries.load(state);
  }

  fill(
    view.main,
    head,
    el("div", { class: "section-head" }, el("h2", {}, "Deliveries"), stateChoice.node),
    el("p", { class: "muted small-text" }, "A delivery is retried for about three days until your server responds with a 2xx status."),
    errorContainer,
    deliveries.node,
  );
  draw();
  await deliveries.load(stateChoice.value());
}

function notes(webhook) {
  if (webhook.enabled) return null;
  const reason = webhook.disabled_reason === null ? "It was disabled by a user." : `It was disabled automatically: ${visibleText(webhook.disabled_reason)}`;
  return el("p", { class: "caution" }, `This webhook is disabled and delivers nothing. ${reason}`);
}

function details(webhook) {
  const oldSecretEnds = webhook.previous_secret_expires_at;
  const isOldSecretValid = oldSecretEnds !== null && Date.parse(oldSecretEnds) > Date.now();
  const rows = [
    ["URL", [el("code", {}, visibleText(webhook.url)), " ", copyButton(webhook.url, "URL")]],
    ["State", webhookState(webhook)],
    ["Events", el("ul", { class: "tags" }, webhook.events.map((event) => el("li", { class: "tag" }, event)))],
    isOldSecretValid && ["Old secret", ["Expires ", relativeTime(oldSecretEnds)]],
    ["Created", [relativeTime(webhook.created_at), ` by ${userName(webhook.created_by)}`]],
    ["ID", [el("code", {}, webhook.id), " ", copyButton(webhook.id, "webhook ID")]],
  ];
  return el("dl", { class: "facts card" }, rows.filter(Boolean).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}
