// Shown instead of pages that belong to a person and not to a workspace.

import { el } from "../dom.js";
import { emptyState } from "../notices.js";

export function personRequired(what) {
  const signOut = () => window.dispatchEvent(new Event("quarterdeck:sign-out"));
  return emptyState(
    `Sign in with your email to ${what}`,
    el("p", {}, "You are signed in with a key, which has no profile and no devices. This signs you out first."),
    el("button", { class: "primary", type: "button", on: { click: signOut } }, "Use email and password"),
  );
}
