// Modal dialogs and form fields.

import { el, flatChildren, uniqueId } from "./dom.js";
import { clearFormErrors, showFormError } from "./form_errors.js";

/**
 * Replaces the content of the page, except undismissable dialogs: these must stay open, and moving a dialog element
 * would take it out of the top layer.
 */
export function replacePage(...children) {
  for (const node of [...document.body.childNodes]) {
    if (!(node instanceof Element && node.classList.contains("undismissable"))) node.remove();
  }
  document.body.prepend(...flatChildren(children));
}

/**
 * Opens a form and resolves to the result of `act(formData)`, or to null if the user cancels. If `act` throws, the
 * dialog stays open and shows the error. Closing the dialog does not cancel a request in flight: its result is still
 * returned.
 */
export function formDialog({ title, fields, confirm, danger = false, act }) {
  return new Promise((resolve) => {
    let result = null;
    let isActing = false;
    const headingId = uniqueId("dialog");
    const errorContainer = el("div", {});
    const submit = el("button", { type: "submit", class: danger ? "danger" : "primary" }, confirm);
    const form = el(
      "form",
      { on: { submit: onSubmit } },
      el("h2", { id: headingId }, title),
      fields,
      errorContainer,
      el("div", { class: "buttons" }, submit, el("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel")),
    );
    const dialog = el("dialog", { "aria-labelledby": headingId, on: { close: onClose } }, form);

    async function onSubmit(event) {
      event.preventDefault();
      if (isActing) return;
      isActing = submit.disabled = true;
      clearFormErrors(form, errorContainer);
      try {
        result = (await act(new FormData(form))) ?? true;
      } catch (error) {
        showFormError(form, errorContainer, error);
      }
      isActing = submit.disabled = false;
      if (!dialog.isConnected) resolve(result);
      else if (result !== null) dialog.close();
    }

    function onClose() {
      dialog.remove();
      if (!isActing) resolve(result);
    }

    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Resolves when the dialog is closed. `isPrimary`: whether its button is the main one. `undismissable`: only the button closes it, for content that cannot be shown again. */
export function messageDialog({ title, body, confirm = "Done", isPrimary = true, undismissable = false }) {
  return /** @type {Promise<void>} */ (new Promise((resolve) => {
    const headingId = uniqueId("dialog");
    // Preventing `cancel` works only for the first Escape, so the key itself is blocked. `closedby` covers the other
    // ways to dismiss a dialog, such as the back gesture on phones.
    const onKeydown = (event) => { if (undismissable && event.key === "Escape") event.preventDefault(); };
    const dialog = el(
      "dialog",
      {
        class: undismissable && "undismissable",
        closedby: undismissable && "none",
        "aria-labelledby": headingId,
        on: { keydown: onKeydown, close: () => { dialog.remove(); resolve(); } },
      },
      el("h2", { id: headingId }, title),
      body,
      el("div", { class: "buttons" }, el("button", { class: isPrimary && "primary", type: "button", on: { click: () => dialog.close() } }, confirm)),
    );
    document.body.append(dialog);
    dialog.showModal();
  }));
}

/** A labelled form control with an optional hint below it. */
export function field(label, control, hint = null) {
  control.id ||= uniqueId("field");
  const hintNode = hint && el("p", { class: "hint", id: uniqueId("hint") }, hint);
  if (hintNode) control.setAttribute("aria-describedby", hintNode.id);
  return el("div", { class: "field" }, el("label", { for: control.id }, label), control, hintNode);
}
