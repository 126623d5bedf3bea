// Fields for passwords.

import { field } from "../dialogs.js";
import { el, uniqueId } from "../dom.js";
import { FieldError } from "../form_errors.js";

// The rule of the server: people/model.py.
const SHORTEST = 10;
const HINT = `At least ${SHORTEST} characters. Several words that you use nowhere else are easy to remember and hard to guess.`;

/** `isNew`: the rules are shown. */
export function passwordField(label, name, { isNew = false } = {}) {
  const autocomplete = isNew ? "new-password" : "current-password";
  const input = el("input", { type: "password", name, required: true, maxlength: 1000, autocomplete, spellcheck: "false", autocapitalize: "none" });
  const box = el("input", { type: "checkbox", id: uniqueId("show"), on: { change: () => { input.type = box.checked ? "text" : "password"; } } });
  const toggle = el("div", { class: "choice" }, box, el("label", { for: box.id }, isNew ? "Show password" : `Show ${label.toLowerCase()}`));
  return el("div", {}, field(label, input, isNew ? HINT : null), isNew && toggle);
}

/** Throws an error for the field unless the password keeps the rules. */
export function newPassword(data, name) {
  const password = data.get(name);
  if (password.length < SHORTEST) throw new FieldError(name, `Use at least ${SHORTEST} characters.`);
  return password;
}
