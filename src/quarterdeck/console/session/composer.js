// The message box of a session.

import { post } from "../api.js";
import { el, fill, uniqueId } from "../dom.js";
import { kindOf } from "../inbox/labels.js";
import { errorBox } from "../notices.js";
import { attachButton, onPaste } from "./attach_files.js";
import { pendingChips } from "./attachment_chips.js";
import { draft, setDraft } from "./drafts.js";
import { pendingFiles } from "./pending_files.js";

const MAX_SCREEN_SHARE = 0.4;
const UPLOADING_NOTE = "The message is sent when all files are uploaded.";
const FAILED_NOTE = "A file could not be uploaded. Retry or remove it, then send the message.";
const WAITING_NOTE = "The run waits for an answer. It reads messages when it continues.";
/** What happens to a message during a run: the value for the API, the choice, the label of the button and its tooltip. */
const DELIVERIES = [
  ["steer", "Steer", "Send to current run", "The current run reads the message at its next step"],
  ["queue", "Queue", "Queue message", "The message starts a run after the current one"],
  ["interrupt", "Interrupt", "Interrupt and send", "The current run is cancelled and the message starts a new one"],
];

const BATCH_TITLE = "The run may take hours and costs half";

/**
 * `send(text, delivery, attachments, isBatch)` is called for each message. `more` is shown beside the state of the run. `files`: a SessionFiles, null if files cannot be attached.
 * `update(conversation)` shows the state of the run; `restore(error)` shows the draft again after a refused message. In an
 * archived session only the current run can be cancelled.
 */
export function composer({ sessionId, signal, send, files, isArchived, more }) {
  let runId = null;
  let isSending = false;
  const pending = pendingFiles(sessionId);
  const chips = pendingChips(pending, files);
  pending.onChange = onFiles;
  const hint = el("span", { class: "hint", id: uniqueId("hint") }, "Enter to send, Shift+Enter for a new line");
  const attributes = { rows: 1, placeholder: "Message", "aria-label": "Message", "aria-describedby": hint.id };
  const text = el("textarea", { ...attributes, value: draft(sessionId), on: { input: onInput, keydown: onKeydown, paste: (event) => files && onPaste(event, add) } });
  const submit = el("button", { type: "submit", class: "primary" }, "Send");
  const options = DELIVERIES.map(([value, label, , title]) => el("option", { value, title }, label));
  const delivery = el("select", { class: "delivery", "aria-label": "Delivery", hidden: true, on: { change: updateLabel } }, options);
  const batch = el("input", { type: "checkbox" });
  const batchLabel = el("label", { class: "batch", title: BATCH_TITLE }, batch, " Batch");
  const cancel = el("button", { type: "button", hidden: true, on: { click: cancelRun } }, "Cancel run");
  const state = el("span", { class: "tag" });
  const errorContainer = el("div", {});
  const waitingNote = el("p", { class: "waiting-note", role: "status" });
  const uploadNote = el("p", { class: "waiting-note", role: "status" });
  const node = el(
    "form",
    { class: "composer", on: { submit: onSubmit } },
    errorContainer,
    waitingNote,
    isArchived
      ? el("p", { class: "muted" }, "This session is archived. Unarchive it to send messages.")
      : [chips.node, text],
    uploadNote,
    el("div", { class: "buttons" }, !isArchived && [submit, delivery, batchLabel, files && attachButton(add)], cancel, !isArchived && hint, more, state),
  );

  function add(blobs) {
    fill(errorContainer);
    pending.add(blobs);
    text.focus();
  }

  /** Sends a message that has waited for its files. */
  function onFiles() {
    if (signal.aborted) return;
    chips.draw();
    const wasWaiting = isSending && !pending.isUploading;
    if (wasWaiting) isSending = false;
    if (wasWaiting && !pending.hasFailed) return sendNow();
    uploadNote.textContent = isSending ? UPLOADING_NOTE : wasWaiting ? FAILED_NOTE : pending.hasFailed ? uploadNote.textContent : "";
    return undefined;
  }

  function onInput() {
    setDraft(sessionId, text.value);
    resize();
  }

  function resize() {
    text.style.height = "auto";
    text.style.height = `${Math.min(text.scrollHeight + 2, window.innerHeight * MAX_SCREEN_SHARE)}px`;
  }

  chips.draw();

  function onKeydown(event) {
    // Input methods use Enter to confirm a character.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    onSubmit(event);
  }

  function onSubmit(event) {
    event.preventDefault();
    text.focus();
    if (text.value.trim() === "" && pending.files.length === 0) return;
    if (!pending.isUploading && !pending.hasFailed) return sendNow();
    isSending = pending.isUploading;
    uploadNote.textContent = isSending ? UPLOADING_NOTE : FAILED_NOTE;
  }

  function sendNow() {
    const message = text.value.trim() === "" ? "" : text.value;
    const attachments = pending.take();
    uploadNote.textContent = "";
    const chosen = runId === null ? "steer" : delivery.value;
    const isBatch = runId === null && batch.checked;
    text.value = "";
    onInput();
    fill(errorContainer);
    // Each choice is for one message.
    delivery.value = "steer";
    batch.checked = false;
    updateLabel();
    send(message, chosen, attachments, isBatch);
  }

  function updateLabel() {
    const [, , label, title] = DELIVERIES.find(([value]) => value === delivery.value);
    delivery.title = title;
    submit.textContent = runId === null ? "Send" : label;
  }

  async function cancelRun() {
    cancel.disabled = true;
    fill(errorContainer);
    text.focus();
    try {
      await post(`/runs/${runId}/cancel`, undefined, signal);
    } catch (error) {
      if (!signal.aborted) fill(errorContainer, errorBox(error));
    } finally {
      cancel.disabled = false;
    }
  }

  return {
    node,
    update({ activeRun, openRequests, runs }) {
      runId = activeRun;
      const isQueued = runs.get(runId)?.state !== "running";
      const isWaiting = openRequests.length > 0;
      if (waitingNote.hasChildNodes() !== isWaiting) waitingNote.textContent = isWaiting ? WAITING_NOTE : "";
      updateLabel();
      if (runId === null && document.activeElement === delivery) text.focus({ preventScroll: true });
      delivery.hidden = runId === null;
      batchLabel.hidden = runId !== null;
      cancel.hidden = runId === null;
      state.className = `tag ${runId === null ? "" : isQueued ? "warn" : "run live"}`;
      state.textContent = runId === null ? "Idle" : isWaiting ? waitingLabel(openRequests) : isQueued ? queuedLabel(runs.get(runId)) : "Running";
    },
    restore(error) {
      text.value = draft(sessionId);
      resize();
      text.focus();
      this.showError(error);
    },
    showError(error) {
      fill(errorContainer, errorBox(error));
    },
    /** `isNew`: the user has just created the session. */
    ready(isNew) {
      resize();
      // On touch screens the focus opens the on-screen keyboard.
      if (isNew || window.matchMedia("(pointer: fine)").matches) text.focus({ preventScroll: true });
    },
  };
}

function queuedLabel(run) {
  return run?.isBatch ? "Waiting for a batch" : "Queued";
}

function waitingLabel(requests) {
  const labels = new Set(requests.map((action) => kindOf(action).waiting));
  return labels.size === 1 ? [...labels][0] : "Waiting for you";
}
