// Dialogs after a key was created.

import { copyButton } from "../clipboard.js";
import { messageDialog } from "../dialogs.js";
import { el } from "../dom.js";
import { visibleName } from "../visible_text.js";

export function showSecret(key, details = null) {
  const body = [
    el("p", {}, "Copy the secret of ", el("strong", {}, visibleName(key.label)), " now. You won't be able to see it again."),
    el("div", { class: "secret" }, el("code", {}, key.secret), copyButton(key.secret, "secret")),
    details,
  ];
  return messageDialog({ title: "Your new key", body, confirm: "I've saved this key", undismissable: true });
}

/** The key was created, but the response with its secret was lost. The response to a retry does not contain it. */
export function showLostSecret(key, details = null) {
  const body = [
    el(
      "p",
      {},
      "The key ", el("strong", {}, visibleName(key.label)), " (", el("code", {}, `${key.prefix}…`), ") was created, but the ",
      "connection failed before its secret arrived. The secret can't be recovered.",
    ),
    el("p", {}, "Revoke this key and create a new one. Key ID:"),
    el("div", { class: "secret" }, el("code", {}, key.id), copyButton(key.id, "key ID")),
    details,
  ];
  return messageDialog({ title: "Secret lost", body, confirm: "OK" });
}
