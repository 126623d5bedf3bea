// Inputs that no run has read yet, and their progress.

/** The progress of an input. */
export const SENDING = "Sending…";
export const STARTED = "Started a run";
export const STEERED = "Sent to current run";
export const QUEUED = "Queued after the current run";
export const MOVED = "Moved to the next run";
export const RETRIED = "Retry";
/** The note under an input that no run has read yet. */
const NOTES = {
  [SENDING]: SENDING,
  [STARTED]: `${STARTED} · Queued`,
  [STEERED]: "Queued for the current run",
  [QUEUED]: QUEUED,
  [MOVED]: `${MOVED} · Queued`,
  [RETRIED]: `${RETRIED} · Queued`,
};

export class UnreadInputs {
  /** `entry`: the outbox entry if this page sent the input, else null. `isRemote`: another client sent it. */
  all = [];

  /** Blocks for the inputs, in the order in which they were sent. */
  get blocks() {
    return this.all.map(({ text, attachments, stage, isRemote, inputId, eventId, at, actor }) => ({
      kind: "input",
      text,
      attachments,
      note: withOrigin(isRemote, NOTES[stage]),
      state: stage === SENDING ? "sending" : "accepted",
      inputId,
      eventId,
      at,
      actor,
    }));
  }

  /** `isResent`: the entry was sent before this page was opened, so the log may already contain it. */
  send(entry, isResent) {
    this.#add({ entry, text: entry.text, attachments: entry.attachments, isResent });
  }

  /** An input from the log: one that this page sent, or a new one. */
  accept({ id, run_id: runId, created_at: at, data }, isRemote) {
    let input = this.all.find((one) => isSameInput(one, data, runId));
    if (input === undefined) input = this.#add({ text: data.text, isRemote: isRemote && data.retried_from === undefined });
    else input.entry.isStored = true;
    return Object.assign(input, { attachments: data.attachments ?? [], inputId: data.input_id, eventId: id, runId, at, actor: data.actor ?? null });
  }

  withEntry(entry) {
    return this.all.find((one) => one.entry === entry);
  }

  ofRun(runId) {
    return this.all.filter((one) => one.runId === runId);
  }

  /** Removes and returns the input with this id. */
  take(inputId) {
    const input = this.all.find((one) => one.inputId !== null && one.inputId === inputId);
    if (input !== undefined) this.drop(input);
    return input;
  }

  drop(input) {
    this.all.splice(this.all.indexOf(input), 1);
  }

  #add(known) {
    const unknown = { entry: null, attachments: [], isResent: false, inputId: null, eventId: null, runId: null, at: null, actor: null, isRemote: false };
    const input = { ...unknown, stage: SENDING, ...known };
    this.all.push(input);
    return input;
  }
}

export function withOrigin(isRemote, note) {
  return isRemote ? `Sent from another client · ${note}` : note;
}

/**
 * Whether a logged input is one that this page sent. The response to a submit has no input id, so inputs are matched by
 * text and attachments; the outbox sends one at a time, so the first match is the right one.
 */
function isSameInput(one, { text, attachments = [], retried_from: retriedFrom }, runId) {
  if (one.entry === null || one.inputId !== null || retriedFrom !== undefined) return false;
  return one.text === text && fileIds(one.attachments) === fileIds(attachments) && (one.runId === null || one.runId === runId);
}

function fileIds(attachments) {
  return attachments.map((one) => one.file_id).join();
}
