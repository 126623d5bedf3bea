// Errors of a form. An error that names a field of the form is shown at that field.

import { el, fill, uniqueId } from "./dom.js";
import { errorBox } from "./notices.js";

/** An error at one field, found before anything is sent. */
export class FieldError extends Error {
  isRetryable = false;

  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

/** `container`: for errors that name no field. */
export function showFormError(form, container, error) {
  const control = namedControl(form, error);
  if (error.isRetryable || control === undefined) {
    fill(container, errorBox(error));
    return;
  }
  const text = error.message.replace(/^Invalid body: /, "").replace(/ - at `[^`]*`$/, "");
  const node = el("p", { class: "field-error", id: uniqueId("error"), role: "alert" }, text);
  control.setAttribute("aria-invalid", "true");
  control.setAttribute("aria-errormessage", node.id);
  const folded = control.closest("details");
  if (folded !== null) folded.open = true;
  if (control.localName === "fieldset") control.append(node);
  else control.after(node);
  node.scrollIntoView({ block: "nearest", behavior: "instant" });
  control.focus();
}

export function clearFormErrors(form, container) {
  fill(container);
  for (const node of form.querySelectorAll(".field-error")) node.remove();
  for (const control of form.querySelectorAll("[aria-invalid]")) {
    control.removeAttribute("aria-invalid");
    control.removeAttribute("aria-errormessage");
  }
}

/** `field` is the name of one. The server names a field in one of these ways: "url must …", "… - at `$.settings.temperature`", "… with this name." */
function namedControl(form, { message, field = null }) {
  const path = /at `\$\.([^`]+)`$/.exec(message)?.[1].split(/\W+/) ?? [];
  const names = [field, ...path.reverse(), /^(?:Invalid body: )?(\w+)/.exec(message)?.[1], / this (\w+)\.$/.exec(message)?.[1]];
  // The innermost one: a field of a configuration is a fieldset around its control of the same name.
  const find = (name) => [...form.elements].findLast((one) => one.name === name && one.type !== "radio" && one.closest("[hidden]") === null);
  return names.map(find).find((one) => one !== undefined);
}
