// The door: an API key, or a session token.

import { get } from "../api.js";
import * as credential from "../credential.js";
import { field, fillPage } from "../dialogs.js";
import { el, fill } from "../dom.js";
import { faultBox } from "../notices.js";

// No browser sends others in a header; it would say that the server cannot be reached.
const SENDABLE = /^[\x20-\x7e]*$/;

/** `reason`: why the one before is no longer good, if there was one. `enter` is called when the door is open. */
export function show(reason, enter) {
  document.title = "Sign in · Quarterdeck";
  const input = el("input", { type: "password", name: "secret", required: true, autocomplete: "off", spellcheck: "false", placeholder: "qd_…" });
  const submit = el("button", { class: "primary", type: "submit" }, "Sign in");
  const fault = el("div", {}, reason && faultBox(reason));

  async function attempt(event) {
    event.preventDefault();
    if (submit.disabled) return;
    submit.disabled = true;
    fill(fault);
    const given = input.value.trim();
    try {
      if (!SENDABLE.test(given)) throw new Error("This is neither a key nor a token: it has characters that none has.");
      credential.keep(given);
      credential.signedIn(await get("/whoami"));
      enter();
    } catch (found) {
      credential.forget();
      fill(fault, faultBox(found));
      submit.disabled = false;
      input.select();
    }
  }

  fillPage(
    el(
      "main",
      { class: "door" },
      el("div", { class: "brand" }, el("span", { class: "brand-mark", "aria-hidden": "true" }), "Quarterdeck"),
      el("h1", {}, reason ? "Sign in again" : "Sign in"),
      el(
        "form",
        { on: { submit: attempt } },
        field("API key or session token", input, "Kept in this tab only, until you close it or sign out."),
        fault,
        el("div", { class: "buttons" }, submit),
      ),
      el("p", { class: "quiet" }, "The first start of the server printed a key. ", el("code", {}, "qd admin create-key"), " makes another."),
      el("p", { class: "quiet" }, el("a", { href: "docs" }, "The API, described")),
    ),
  );
  input.focus();
}
