// What the console says by itself: short notes that pass, and errors that stay.

import { copyButton } from "./copying.js";
import { el } from "./dom.js";

const SHOWN_MS = 6000;

/** Said aloud by screen readers, gone after a while. */
export function notice(text) {
  const note = el("div", { class: "notice" }, text);
  document.querySelector(".notices")?.append(note);
  setTimeout(() => note.remove(), SHOWN_MS);
}

/** An error in its place: what is wrong, the id of the request to ask the operator about, and a way to try again. */
export function faultBox(fault, again = null) {
  return el(
    "div",
    { class: "fault", role: "alert" },
    el("p", {}, fault.message || "Something went wrong in this page."),
    fault.requestId && el("p", { class: "quiet" }, "Request ", el("code", {}, fault.requestId), " ", copyButton(fault.requestId, "the request id")),
    again && el("button", { type: "button", on: { click: again } }, "Try again"),
  );
}

/** A list that is empty says what to do first. */
export function emptyBox(title, ...children) {
  return el("div", { class: "empty" }, el("h2", {}, title), children);
}

/** In place of what the credential may not see. */
export function lackingBox(what, permission) {
  return emptyBox(
    `This key does not show ${what}`,
    el("p", {}, "It lacks the permission ", el("code", {}, permission), ". Sign in with a key that holds it."),
  );
}

export function loading(what) {
  return el("p", { class: "quiet", role: "status" }, `Loading ${what}…`);
}
