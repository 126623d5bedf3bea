// A session as a person in it sees it: what was said, what waits to be taken up, what runs. Events go in, blocks come
// out. Nothing is drawn here, and there is no clock. `qd chat` goes by the same rules.

import { Runs } from "./runs.js";

/** How far an input has come, in the words that are shown. */
export const SENDING = "sending";
const STARTED = "started a run";
const STEERED = "steered the run";
const HANDED_ON = "handed to the next run";

// A tab that nobody looks at is not drawn; what would be said then is not kept without bound.
const MOST_WORDS = 20;

export class Conversation {
  /** What is in its place for good: only a tool that is at work still changes, and counts it in `revision`. */
  blocks = [];
  /** Inputs that no run has taken up yet. `entry`: what the outbox sends, if it is ours. */
  waiting = [];
  runs = new Runs();
  activeRun = null;
  /** The id of the last entry that was taken in. */
  position = 0;
  /** Whether what the log tells happens now, and not before we came. */
  live = false;

  #words = [];
  #calls = new Map();
  #attempt = 0;
  #streamed = "";
  #missedText = false;
  #on = {
    "input.accepted": (event) => this.#inputAccepted(event),
    "input.consumed": (event) => this.#inputConsumed(event),
    "input.discarded": (event) => this.#inputDiscarded(event),
    "run.started": (event) => this.#runStarted(event),
    "run.requeued": (event) => this.#runRequeued(event),
    message: (event) => this.#message(event),
    "tool.call": (event) => this.#toolCall(event),
    "tool.result": (event) => this.#toolResult(event),
    "context.trimmed": (event) => this.#contextTrimmed(event),
    "run.succeeded": (event) => this.#ended(event, "succeeded", "The run has ended."),
    "run.failed": (event) => this.#runFailed(event),
    "run.cancelled": (event) => this.#ended(event, "cancelled", "The run was cancelled."),
  };

  /** Text of the answer that is being written. The stored answer takes its place. */
  get streaming() {
    return this.#streamed && this.#missedText ? `… ${this.#streamed}` : this.#streamed;
  }

  /** What happened since it was last asked, for who listens instead of looking. */
  takeWords() {
    return this.#words.splice(0);
  }

  // --- what the person does ---

  /** `again`: it was sent before this page was opened, so the log may hold it already. */
  send(entry, again = false) {
    this.waiting.push({ entry, text: entry.text, again, inputId: null, runId: null, stage: SENDING, elsewhere: false });
  }

  /** The server has accepted it. The log may have told so already, and more. */
  answered(entry, outcome, runId) {
    const found = this.waiting.find((one) => one.entry === entry);
    if (found === undefined || found.stage !== SENDING) return;
    if (found.again && this.runs.holds(runId, found.text)) {
      this.#drop(found);
      return;
    }
    found.runId = runId;
    this.activeRun = runId;
    this.#accepted(found, outcome === "new_run" ? STARTED : STEERED);
  }

  refused(entry) {
    const found = this.waiting.find((one) => one.entry === entry);
    if (found !== undefined) this.#drop(found);
  }

  // --- what the connection does ---

  /** A new stream has begun. What was written meanwhile is missing from the live text. */
  resumed() {
    this.live = true;
    this.#streamed = "";
    this.#missedText = this.activeRun !== null;
  }

  // --- what the log tells ---

  delta({ attempt, run_id: runId, text }) {
    if (attempt >= this.#attempt && runId === this.activeRun) this.#streamed += text;
  }

  event(event) {
    if (event.id <= this.position) return;
    this.position = event.id;
    this.#on[event.type]?.(event);
  }

  #inputAccepted(event) {
    const { text, input_id: inputId } = event.data;
    let found = this.waiting.find((one) => mayBe(one, text, event.run_id));
    if (found === undefined) {
      found = { entry: null, text, again: false, inputId, runId: null, stage: SENDING, elsewhere: this.live };
      this.waiting.push(found);
    } else {
      found.entry.isStored = true;
    }
    found.inputId = inputId;
    found.runId = event.run_id;
    this.activeRun = event.run_id;
    const steers = this.runs.accepted(event);
    if (found.stage === SENDING) this.#accepted(found, steers ? STEERED : STARTED);
  }

  #inputConsumed(event) {
    const found = this.#identified(event);
    if (found === undefined) return;
    const { step } = event.data;
    const taken = step === undefined ? "taken up" : `taken up at step ${step}`;
    const elsewhere = found.elsewhere ? "sent from elsewhere · " : "";
    this.#drop(found);
    this.#add({ kind: "input", text: found.text, state: "taken", note: `${elsewhere}${found.stage} · ${taken}` });
    this.#say(`${found.elsewhere ? "An input from elsewhere" : "Your input"} was ${taken}.`);
  }

  #inputDiscarded(event) {
    const found = this.#identified(event);
    if (found === undefined) return;
    this.#drop(found);
    const note = `discarded: ${event.data.reason ?? ""}`;
    this.#add({ kind: "input", text: found.text, state: "discarded", note });
    this.#say(`An input was ${note}`);
  }

  #runStarted(event) {
    this.activeRun = event.run_id;
    this.#attempt = event.data.attempt ?? 0;
    this.#forgetStreamed();
    this.runs.started(event);
  }

  #runRequeued(event) {
    // What it was writing is asked for again.
    this.#forgetStreamed();
    this.runs.requeued(event);
    this.#note(`The run goes on elsewhere: ${event.data.reason ?? ""}`);
  }

  #message(event) {
    this.#forgetStreamed();
    this.activeRun = event.run_id;
    const text = event.data.text ?? "";
    if (text.trim() === "") return;
    this.#add({ kind: "answer", text, cut: false });
    this.#say(text);
  }

  #toolCall(event) {
    const { call_id: callId, name, arguments: given } = event.data;
    this.#calls.set(callId, this.#add({ kind: "tool", name, given: given ?? {}, result: null, state: "working" }));
    this.#say(`Using the tool ${name}.`);
  }

  #toolResult(event) {
    const { call_id: callId, name, text } = event.data;
    // One without its call is shown all the same.
    const block = this.#calls.get(callId) ?? this.#add({ kind: "tool", name, given: {} });
    this.#calls.delete(callId);
    Object.assign(block, { result: text ?? "", state: "done", revision: block.revision + 1 });
  }

  #contextTrimmed(event) {
    this.#note(`${count(event.data.dropped_turns ?? 0, "earlier turn")} no longer fit into the model.`);
  }

  #runFailed(event) {
    this.#ended(event, "failed", `The run failed: ${event.data.reason ?? ""}`);
    const next = event.data.next_run_id;
    if (next === undefined) return;
    this.activeRun = next;
    this.runs.handedOn(next, event);
    const handed = this.waiting.filter((one) => one.runId === event.run_id);
    for (const one of handed) Object.assign(one, { runId: next, stage: HANDED_ON });
    this.#note(`${count(handed.length, "input")} handed to the next run.`);
  }

  /** What the run leaves unfinished is shown as such: it is stored nowhere. */
  #ended(event, state, text) {
    for (const block of this.#calls.values()) Object.assign(block, { state: "open", revision: block.revision + 1 });
    if (this.#streamed.trim() !== "") this.#add({ kind: "answer", text: this.streaming, cut: true });
    this.#forgetStreamed();
    this.#calls.clear();
    this.#attempt = 0;
    this.activeRun = null;
    this.#add({ kind: "end", state, text, took: this.runs.ended(event, state) });
    this.#say(text);
  }

  #accepted(found, stage) {
    found.stage = stage;
    this.#say(`Accepted: it ${stage}.`);
  }

  #identified(event) {
    return this.waiting.find((one) => one.inputId !== null && one.inputId === event.data.input_id);
  }

  #drop(found) {
    this.waiting.splice(this.waiting.indexOf(found), 1);
  }

  #forgetStreamed() {
    this.#streamed = "";
    this.#missedText = false;
  }

  #note(text) {
    this.#add({ kind: "note", text });
    this.#say(text);
  }

  #add(block) {
    const added = { ...block, revision: 0 };
    this.blocks.push(added);
    return added;
  }

  #say(text) {
    if (!this.live) return;
    this.#words.push(text);
    if (this.#words.length > MOST_WORDS) this.#words.shift();
  }
}

/** Whether an entry of the log is about an input of ours. Ours go out one by one, so the first is meant. */
function mayBe(one, text, runId) {
  return one.entry !== null && one.inputId === null && one.text === text && (one.runId === null || one.runId === runId);
}

export function count(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}
