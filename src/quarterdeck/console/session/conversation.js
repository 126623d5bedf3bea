// The state of a conversation: events go in, blocks come out. Nothing is rendered here.

import { pluralize } from "../format.js";
import { Runs } from "./runs.js";

/** The progress of an input. */
const SENDING = "Sending…";
const STARTED = "Started a run";
const STEERED = "Sent to current run";
const MOVED = "Moved to the next run";
/** The note under an input that no run has read yet. */
const PENDING_NOTES = {
  [SENDING]: SENDING,
  [STARTED]: `${STARTED} · Queued`,
  [STEERED]: "Queued for the current run",
  [MOVED]: `${MOVED} · Queued`,
};

// Announcements are not taken while the tab is hidden, so their number is limited.
const MAX_ANNOUNCEMENTS = 20;

export class Conversation {
  /** Blocks in their final order. A tool call still changes while it runs and then increments its `revision`. */
  blocks = [];
  runs = new Runs();
  activeRun = null;
  /** The id of the last processed event. */
  position = 0;

  /** Inputs that no run has read. `entry`: the outbox entry if this page sent the input, else null. */
  #inputs = [];
  /** False while the stored log is loaded: nothing is announced then. */
  #isLive = false;
  #announcements = [];
  #calls = new Map();
  #attempt = 0;
  #streamed = "";
  #isTextMissing = false;
  #handlers = {
    "input.accepted": (event) => this.#inputAccepted(event),
    "input.consumed": (event) => this.#inputConsumed(event),
    "input.discarded": (event) => this.#inputDiscarded(event),
    "run.started": (event) => this.#runStarted(event),
    "run.requeued": (event) => this.#runRequeued(event),
    message: (event) => this.#message(event),
    "tool.call": (event) => this.#toolCall(event),
    "tool.result": (event) => this.#toolResult(event),
    "context.trimmed": (event) => this.#contextTrimmed(event),
    "run.succeeded": (event) => this.#runEnded(event, "succeeded", "Completed"),
    "run.failed": (event) => this.#runFailed(event),
    "run.cancelled": (event) => this.#runEnded(event, "cancelled", "Cancelled"),
  };

  /** The text of the answer that is being written. The stored message replaces it. */
  get streaming() {
    return this.#streamed && this.#isTextMissing ? `… ${this.#streamed}` : this.#streamed;
  }

  /** `{text, note, isSending}` of the inputs that no run has read. */
  get pending() {
    return this.#inputs.map(({ text, stage, isRemote }) => ({
      text,
      note: withOrigin(isRemote, PENDING_NOTES[stage]),
      isSending: stage === SENDING,
    }));
  }

  /** Texts for screen readers since the last call. */
  takeAnnouncements() {
    return this.#announcements.splice(0);
  }

  // --- user actions ---

  /** `isResent`: the entry was sent before this page was opened, so the log may already contain it. */
  send(entry, isResent = false) {
    this.#inputs.push({ entry, text: entry.text, isResent, inputId: null, runId: null, stage: SENDING, isRemote: false });
  }

  /** The response to a submitted input. The event stream may have delivered the input earlier. */
  accepted(entry, outcome, runId) {
    const input = this.#inputs.find((one) => one.entry === entry);
    if (input === undefined || input.stage !== SENDING) return;
    if (input.isResent && this.runs.hasInput(runId, input.text)) {
      this.#drop(input);
      return;
    }
    input.runId = runId;
    this.activeRun = runId;
    this.#setStage(input, outcome === "new_run" ? STARTED : STEERED);
  }

  refused(entry) {
    const input = this.#inputs.find((one) => one.entry === entry);
    if (input !== undefined) this.#drop(input);
  }

  // --- connection ---

  /** A new stream has started. Text deltas that were sent in between are missing. */
  resumed() {
    this.#isLive = true;
    this.#streamed = "";
    this.#isTextMissing = this.activeRun !== null;
  }

  // --- events ---

  delta({ attempt, run_id: runId, text }) {
    if (attempt >= this.#attempt && runId === this.activeRun) this.#streamed += text;
  }

  event(event) {
    if (event.id <= this.position) return;
    this.position = event.id;
    this.#handlers[event.type]?.(event);
  }

  #inputAccepted(event) {
    const { text, input_id: inputId } = event.data;
    let input = this.#inputs.find((one) => isSameInput(one, text, event.run_id));
    if (input === undefined) {
      input = { entry: null, text, isResent: false, inputId, runId: null, stage: SENDING, isRemote: this.#isLive };
      this.#inputs.push(input);
    } else {
      input.entry.isStored = true;
    }
    input.inputId = inputId;
    input.runId = event.run_id;
    this.activeRun = event.run_id;
    const isSteering = this.runs.inputAccepted(event);
    if (input.stage === SENDING) this.#setStage(input, isSteering ? STEERED : STARTED);
  }

  #inputConsumed(event) {
    const input = this.#takeInput(event);
    if (input === undefined) return;
    const { step } = event.data;
    const read = step === undefined ? "Read" : `Read at step ${step}`;
    const note = withOrigin(input.isRemote, `${input.stage} · ${read}`);
    this.#add({ kind: "input", text: input.text, state: "read", note });
    this.#announce(`${input.isRemote ? "Input from another client" : "Your input"}: ${read}.`);
  }

  #inputDiscarded(event) {
    const input = this.#takeInput(event);
    if (input === undefined) return;
    const note = `Discarded: ${event.data.reason ?? ""}`;
    this.#add({ kind: "input", text: input.text, state: "discarded", note });
    this.#announce(`Input ${note}`);
  }

  #runStarted(event) {
    this.activeRun = event.run_id;
    this.#attempt = event.data.attempt ?? 0;
    this.#clearStreamed();
    this.runs.started(event);
  }

  #runRequeued(event) {
    // The next attempt writes the answer again.
    this.#clearStreamed();
    this.runs.requeued(event);
    this.#note(`The run was requeued: ${event.data.reason ?? ""}`);
  }

  #message(event) {
    this.#clearStreamed();
    this.activeRun = event.run_id;
    const text = event.data.text ?? "";
    if (text.trim() === "") return;
    this.#add({ kind: "answer", text, isPartial: false });
    this.#announce(text);
  }

  #toolCall(event) {
    const { call_id: callId, name, arguments: callArguments } = event.data;
    const block = this.#add({ kind: "tool", name, arguments: callArguments ?? {}, result: null, state: "running" });
    this.#calls.set(callId, block);
    this.#announce(`Calling the tool ${name}.`);
  }

  #toolResult(event) {
    const { call_id: callId, name, text } = event.data;
    const block = this.#calls.get(callId) ?? this.#add({ kind: "tool", name, arguments: {} });
    this.#calls.delete(callId);
    Object.assign(block, { result: text ?? "", state: "done", revision: block.revision + 1 });
  }

  #contextTrimmed(event) {
    this.#note(`${pluralize(event.data.dropped_turns ?? 0, "earlier turn")} removed to fit the model's context.`);
  }

  #runFailed(event) {
    this.#runEnded(event, "failed", `Failed: ${event.data.reason ?? ""}`);
    const next = event.data.next_run_id;
    if (next === undefined) return;
    this.activeRun = next;
    this.runs.followUp(next, event);
    const moved = this.#inputs.filter((one) => one.runId === event.run_id);
    for (const input of moved) Object.assign(input, { runId: next, stage: MOVED });
    this.#note(`${pluralize(moved.length, "input")} moved to the next run.`);
  }

  /** Unfinished text and tool calls are marked as such: they are not stored. */
  #runEnded(event, state, text) {
    for (const block of this.#calls.values()) Object.assign(block, { state: "unfinished", revision: block.revision + 1 });
    if (this.#streamed.trim() !== "") this.#add({ kind: "answer", text: this.streaming, isPartial: true });
    this.#clearStreamed();
    this.#calls.clear();
    this.#attempt = 0;
    this.activeRun = null;
    this.#add({ kind: "end", state, text, durationMs: this.runs.ended(event, state) });
    this.#announce(`Run: ${text}`);
  }

  #setStage(input, stage) {
    input.stage = stage;
    this.#announce(`${stage}.`);
  }

  #takeInput(event) {
    const input = this.#inputs.find((one) => one.inputId !== null && one.inputId === event.data.input_id);
    if (input !== undefined) this.#drop(input);
    return input;
  }

  #drop(input) {
    this.#inputs.splice(this.#inputs.indexOf(input), 1);
  }

  #clearStreamed() {
    this.#streamed = "";
    this.#isTextMissing = false;
  }

  #note(text) {
    this.#add({ kind: "note", text });
    this.#announce(text);
  }

  #add(block) {
    const added = { ...block, revision: 0 };
    this.blocks.push(added);
    return added;
  }

  #announce(text) {
    if (!this.#isLive) return;
    this.#announcements.push(text);
    if (this.#announcements.length > MAX_ANNOUNCEMENTS) this.#announcements.shift();
  }
}

function withOrigin(isRemote, note) {
  return isRemote ? `Sent from another client · ${note}` : note;
}

/**
 * Whether a logged input is one that this page sent. The response to a submit has no input id, so inputs are matched by
 * text; the outbox sends one at a time, so the first match is the right one.
 */
function isSameInput(one, text, runId) {
  return one.entry !== null && one.inputId === null && one.text === text && (one.runId === null || one.runId === runId);
}
