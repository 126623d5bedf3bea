// Notices, errors, empty states and loading indicators.

import { copyButton } from "./clipboard.js";
import { profile, reasonAgainst } from "./credential.js";
import { el } from "./dom.js";
import { capitalize } from "./format.js";

const NOTICE_MS = 6000;

/** A temporary message in the corner of the page, announced by screen readers. */
export function notice(text) {
  const node = el("div", { class: "notice" }, text);
  document.querySelector(".notices")?.append(node);
  setTimeout(() => node.remove(), NOTICE_MS);
}

/** An error. If trying again can help, also its request id and, if `retry` is given, a button to try again. */
export function errorBox(error, retry = null) {
  const isRetryable = error.isRetryable ?? true;
  return el(
    "div",
    { class: "error", role: "alert" },
    el("p", {}, error.message || "Something went wrong."),
    isRetryable && error.requestId && el("p", { class: "muted" }, "Request ", el("code", {}, error.requestId), " ", copyButton(error.requestId, "request ID")),
    isRetryable && retry && el("button", { type: "button", on: { click: retry } }, "Try again"),
  );
}

export function emptyState(title, ...children) {
  return el("div", { class: "empty" }, el("h2", {}, title), children);
}

/** Shown instead of content that the caller is not allowed to read. */
export function missingPermission(what, permission) {
  return emptyState(
    `No access to ${what}`,
    el("p", {}, capitalize(reasonAgainst(permission)), profile() === null && " Sign in with a key that has it."),
  );
}

export function loading(what) {
  return el("p", { class: "muted", role: "status" }, `Loading ${what}…`);
}
