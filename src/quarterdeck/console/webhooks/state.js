// States of webhooks and deliveries as tags.

import { el } from "../dom.js";
import { relativeTime } from "../time_format.js";

const DELIVERY_STATES = {
  pending: ["warn", "Pending"],
  delivered: ["good", "Delivered"],
  failed: ["bad", "Failed"],
};

export function webhookState(webhook) {
  if (webhook.enabled) return el("span", { class: "tag good" }, "Enabled");
  return el("span", { class: webhook.disabled_reason === null ? "tag" : "tag bad" }, webhook.disabled_reason === null ? "Disabled" : "Disabled automatically");
}

/** The state, with the time of the next attempt if there is one. */
export function deliveryState(delivery) {
  const [tone, label] = DELIVERY_STATES[delivery.state];
  return el(
    "div",
    {},
    el("span", { class: `tag ${tone}` }, label),
    delivery.state === "pending" && delivery.attempts > 0 && el("div", { class: "muted small-text" }, nextAttempt(delivery.next_attempt_at)),
  );
}

/** A time in the past means that no worker has taken the delivery yet. */
function nextAttempt(time) {
  return time === null || Date.parse(time) <= Date.now() ? "Next attempt due" : ["Next attempt ", relativeTime(time)];
}
