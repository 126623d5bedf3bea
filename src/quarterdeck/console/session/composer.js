// Where one writes. It says what sending will do, and what became of it.

import { post } from "../api.js";
import { field } from "../dialogs.js";
import { el, fill } from "../dom.js";
import { faultBox } from "../notices.js";
import { draft, keepDraft } from "./drafts.js";

const MOST_HEIGHT = 0.4;

/**
 * `send(text)` takes a message over. `update(conversation)` follows the run; `returned(fault)` shows a draft again. In
 * a session that is archived a run can still be cancelled, and nothing written.
 */
export function composer(sessionId, signal, send, isArchived) {
  let run = null;
  const text = el("textarea", { rows: 1, value: draft(sessionId), on: { input: typed, keydown: pressed } });
  const submit = el("button", { type: "submit", class: "primary" }, "Start a run");
  const stop = el("button", { type: "button", hidden: true, on: { click: cancel } }, "Cancel the run");
  const state = el("span", { class: "tag" });
  const fault = el("div", {});
  const node = el(
    "form",
    { class: "composer", on: { submit: submitted } },
    fault,
    isArchived
      ? el("p", { class: "quiet" }, "This session is archived and takes no input.")
      : field("Your message", text, "Enter sends, Shift and Enter begin a new line."),
    el("div", { class: "buttons" }, !isArchived && submit, stop, state),
  );

  function typed() {
    keepDraft(sessionId, text.value);
    fit();
  }

  /** As high as what is in it, up to a part of the screen. */
  function fit() {
    text.style.height = "auto";
    text.style.height = `${Math.min(text.scrollHeight + 2, window.innerHeight * MOST_HEIGHT)}px`;
  }

  function pressed(event) {
    // Enter also ends the choice of a character where one writes with an input method.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submitted(event);
  }

  function submitted(event) {
    event.preventDefault();
    text.focus();
    if (text.value.trim() === "") return;
    const given = text.value;
    text.value = "";
    typed();
    fill(fault);
    send(given);
  }

  async function cancel() {
    stop.disabled = true;
    fill(fault);
    text.focus();
    try {
      await post(`/runs/${run}/cancel`, undefined, signal);
    } catch (found) {
      if (!signal.aborted) fill(fault, faultBox(found));
    } finally {
      stop.disabled = false;
    }
  }

  return {
    node,
    update({ activeRun, runs }) {
      run = activeRun;
      const isQueued = runs.all.at(-1)?.state === "queued";
      submit.textContent = run === null ? "Start a run" : "Steer the run";
      stop.hidden = run === null;
      state.className = `tag ${run === null ? "" : isQueued ? "warn" : "run live"}`;
      state.textContent = run === null ? "idle" : isQueued ? "queued" : "running";
    },
    returned(found) {
      text.value = draft(sessionId);
      fit();
      text.focus();
      fill(fault, faultBox(found));
    },
    ready() {
      fit();
      // On a screen that is touched the focus would bring up a keyboard that hides half of it.
      if (window.matchMedia("(pointer: fine)").matches) text.focus({ preventScroll: true });
    },
  };
}
