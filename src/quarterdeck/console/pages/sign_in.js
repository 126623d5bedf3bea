// The sign-in page.

import { ApiError, get } from "../api.js";
import * as credential from "../credential.js";
import { field, replacePage } from "../dialogs.js";
import { el, fill } from "../dom.js";
import { HELP_LINKS } from "../navigation.js";
import { errorBox } from "../notices.js";
import { setTabActivity, setTabTitle } from "../tab.js";

const INVALID = "This key is invalid, expired or revoked.";
// Browsers refuse other characters in a header, which would look like an unreachable server.
const HEADER_SAFE = /^[\x20-\x7e]*$/;

/** `reason`: the error that ended the previous session, or null. `onSignIn` is called after a successful sign-in. */
export function show(reason, onSignIn) {
  setTabActivity(null);
  setTabTitle("Sign in");
  const input = el("input", { type: "password", name: "secret", required: true, autocomplete: "off", spellcheck: "false", placeholder: "qd_…" });
  const submit = el("button", { class: "primary", type: "submit" }, "Sign in");
  const errorContainer = el("div", {}, reason && errorBox(withPlainMessage(reason)));

  async function onSubmit(event) {
    event.preventDefault();
    if (submit.disabled) return;
    submit.disabled = true;
    fill(errorContainer);
    const secret = input.value.trim();
    try {
      if (!HEADER_SAFE.test(secret)) throw new Error(INVALID);
      credential.storeSecret(secret);
      credential.setCaller(await get("/whoami"));
      onSignIn();
    } catch (error) {
      credential.clearCredential();
      fill(errorContainer, errorBox(withPlainMessage(error)));
      submit.disabled = false;
      input.select();
    }
  }

  replacePage(
    el(
      "main",
      { class: "sign-in" },
      el("div", { class: "brand" }, el("span", { class: "brand-mark", "aria-hidden": "true" }), "Quarterdeck"),
      el("h1", {}, reason ? "Sign in again" : "Sign in"),
      el(
        "form",
        { on: { submit: onSubmit } },
        field("API key or session token", input, "Stored in this tab only, until you close it or sign out."),
        errorContainer,
        el("div", { class: "buttons" }, submit),
      ),
      el("p", { class: "muted" }, "The server prints a key when it first starts. Create more with ", el("code", {}, "qd admin create-key"), "."),
      el("p", { class: "muted" }, HELP_LINKS.map(({ url, name }, index) => [index > 0 && " · ", el("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, name)])),
    ),
  );
  input.focus();
}

function withPlainMessage(error) {
  return error instanceof ApiError && error.status === 401 ? new ApiError(401, error.code, INVALID, error.requestId) : error;
}
