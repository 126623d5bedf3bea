// Questions in front of the page. Escape closes them, the keyboard stays inside, and the focus goes back.

import { el, fill, freshId, present } from "./dom.js";
import { faultBox } from "./notices.js";

/**
 * In place of all that was on the page. What is shown only once stays in front of it until the person has seen it,
 * and where it is: a dialog that is moved no longer stands in front.
 */
export function fillPage(...children) {
  for (const node of [...document.body.childNodes]) if (!node.classList?.contains("once")) node.remove();
  document.body.prepend(...present(children));
}

/**
 * Open a form. `act(data)` is given a FormData; it closes the dialog by returning and keeps it open by throwing, whose
 * message is then shown. `danger`: what it does cannot be taken back. Gives what `act` returned, or null. Closing it does
 * not take back what is already sent: what comes of that is still given.
 */
export function formDialog({ title, fields, confirm, danger = false, act }) {
  return new Promise((done) => {
    let result = null;
    let isActing = false;
    const heading = freshId("dialog");
    const fault = el("div", {});
    const submit = el("button", { type: "submit", class: danger ? "danger" : "primary" }, confirm);
    const form = el(
      "form",
      { on: { submit: attempt } },
      el("h2", { id: heading }, title),
      fields,
      fault,
      el("div", { class: "buttons" }, submit, el("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel")),
    );
    const dialog = el("dialog", { "aria-labelledby": heading, on: { close: ended } }, form);

    async function attempt(event) {
      event.preventDefault();
      if (isActing) return;
      isActing = submit.disabled = true;
      fill(fault);
      try {
        result = (await act(new FormData(form))) ?? true;
      } catch (reason) {
        fill(fault, faultBox(reason));
      }
      isActing = submit.disabled = false;
      if (!dialog.isConnected) done(result);
      else if (result !== null) dialog.close();
    }

    function ended() {
      dialog.remove();
      if (!isActing) done(result);
    }

    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Show something until the person has seen it. `once`: it cannot be shown again, so only the button closes it. */
export function tell({ title, body, confirm = "Done", once = false }) {
  return new Promise((done) => {
    const heading = freshId("dialog");
    const close = () => dialog.close();
    // A browser asks once (`cancel`) and closes at the next Escape; so the key itself is taken away, and where it is known
    // the attribute says the same of other ways, such as a phone's gesture.
    const keep = (event) => { if (once && event.key === "Escape") event.preventDefault(); };
    const dialog = el(
      "dialog",
      {
        class: once && "once",
        closedby: once && "none",
        "aria-labelledby": heading,
        on: { keydown: keep, close: () => { dialog.remove(); done(); } },
      },
      el("h2", { id: heading }, title),
      present([body]),
      el("div", { class: "buttons" }, el("button", { class: "primary", type: "button", on: { click: close } }, confirm)),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** A labelled control. `hint` stands below it and is read with it. */
export function field(label, control, hint = null) {
  control.id ||= freshId("field");
  const below = hint && el("p", { class: "hint", id: freshId("hint") }, hint);
  if (below) control.setAttribute("aria-describedby", below.id);
  return el("div", { class: "field" }, el("label", { for: control.id }, label), control, below);
}
