// A new key, shown the one time that its secret is known.

import { copyButton } from "../copying.js";
import { tell } from "../dialogs.js";
import { el } from "../dom.js";
import { named } from "../visible.js";

/** `more`: what else the person should know. */
export function showSecret(key, more = null) {
  const body = [
    el("p", {}, "This is the secret of ", el("strong", {}, named(key.label)), ". It is shown now and never again: put it where it is needed."),
    el("div", { class: "secret" }, el("code", {}, key.secret), copyButton(key.secret, "the secret")),
    more,
  ];
  return tell({ title: "Your new key", body, confirm: "I have it", once: true });
}

/** The server made the key, but the answer that held the secret was lost on the way; a second one does not hold it. */
export function tellLost(key, more = null) {
  const body = [
    el(
      "p",
      {},
      "The key ", el("strong", {}, named(key.label)), " (", el("code", {}, `${key.prefix}…`), ") was made, but the connection broke before its ",
      "secret arrived. Nobody has it, and it cannot be shown again.",
    ),
    el("p", {}, "Revoke this key and create another. Its id is:"),
    el("div", { class: "secret" }, el("code", {}, key.id), copyButton(key.id, "the id of the key")),
    more,
  ];
  return tell({ title: "The secret was lost", body, confirm: "I understand" });
}
