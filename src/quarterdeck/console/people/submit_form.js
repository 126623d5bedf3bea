// A form on a page. Dialogs have their own: dialogs.js.

import { el } from "../dom.js";
import { clearFormErrors, showFormError } from "../form_errors.js";

/** `act(data)` may throw; the form then shows the error. `more` stands beside the button. */
export function submitForm({ fields, confirm, act, more = null }) {
  const errors = el("div", {});
  const submit = el("button", { class: "primary", type: "submit" }, confirm);

  async function onSubmit(event) {
    event.preventDefault();
    if (submit.disabled) return;
    submit.disabled = true;
    clearFormErrors(form, errors);
    try {
      await act(new FormData(form));
    } catch (error) {
      showFormError(form, errors, error);
    }
    submit.disabled = false;
  }

  const form = el("form", { on: { submit: onSubmit } }, fields, errors, el("div", { class: "buttons" }, submit, more));
  return form;
}
