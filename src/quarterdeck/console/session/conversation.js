// The state of a conversation: events go in, blocks come out. Nothing is rendered here.

import { pluralize } from "../format.js";
import { answerText, kindOf } from "../inbox/labels.js";
import { visibleName, visibleText } from "../visible_text.js";
import { LiveOutput } from "./live_output.js";
import { ModelContext, REFUSED } from "./model_context.js";
import { Requests } from "./requests.js";
import { Runs } from "./runs.js";
import { MOVED, QUEUED, RETRIED, SENDING, STARTED, STEERED, UnreadInputs, withOrigin } from "./unread_inputs.js";

// Announcements are not taken while the tab is hidden, so their number is limited.
const MAX_ANNOUNCEMENTS = 20;
const DISCARD_NOTES = { withdrawn: "Withdrawn", dropped: "Removed" };

export class Conversation {
  /** Blocks in their final order. A block that changes increments its `revision`. */
  blocks = [];
  runs = new Runs();
  activeRun = null;
  /** The id of the last processed event. */
  position = 0;

  #unread = new UnreadInputs();
  #context = new ModelContext();
  #requests = new Requests();
  /** False while the stored log is loaded: nothing is announced then. */
  #isLive = false;
  #announcements = [];
  #calls = new Map();
  /** The end of each run. */
  #ends = new Map();
  #attempt = 0;
  #streamed = "";
  /** The text about the last request to the model, if it has failed and is repeated. */
  #retry = null;
  #handlers = {
    "input.accepted": (event) => this.#inputAccepted(event),
    "input.consumed": (event) => this.#inputConsumed(event),
    "input.discarded": (event) => this.#inputDiscarded(event),
    "run.started": (event) => this.#runStarted(event),
    "run.requeued": (event) => this.#runRequeued(event),
    message: (event) => this.#message(event),
    "tool.call": (event) => this.#toolCall(event),
    "tool.started": (event) => this.#toolStarted(event),
    "tool.result": (event) => this.#toolResult(event),
    "action.required": (event) => this.#actionRequired(event),
    "action.resolved": (event) => this.#actionResolved(event),
    note: (event) => this.#noteAdded(event),
    "model.switched": (event) => this.#modelSwitched(event),
    "settings.ignored": (event) => this.#settingsIgnored(event),
    "context.trimmed": (event) => this.#contextTrimmed(event),
    "context.compacted": (event) => this.#contextCompacted(event),
    "mcp.unavailable": (event) => this.#serverUnavailable(event),
    "run.succeeded": (event) => this.#runEnded(event, "succeeded", "Completed"),
    "run.failed": (event) => this.#runFailed(event),
    "run.cancelled": (event) => this.#runEnded(event, "cancelled", "Cancelled"),
  };

  /** The text of the answer that is being written. The stored message replaces it. */
  get streaming() {
    return this.#streamed;
  }

  /** What the current run does: `working`, `waiting` (for a person), or null. */
  get activity() {
    const state = this.runs.get(this.activeRun)?.state;
    if (state === "waiting") return "waiting";
    return state === "queued" || state === "running" ? "working" : null;
  }

  /** What goes on while nothing is written, or null. */
  get progress() {
    if (this.#streamed !== "" || this.activity !== "working") return null;
    return this.#retry ?? (this.runs.get(this.activeRun).state === "running" ? "Working…" : "Waiting for a worker…");
  }

  /** Blocks of the inputs that no run has read. */
  get pending() {
    return this.#unread.blocks;
  }

  /** Texts for screen readers since the last call. */
  takeAnnouncements() {
    return this.#announcements.splice(0);
  }

  /** The open requests of the current run. */
  get openRequests() {
    return this.activeRun === null ? [] : this.#requests.openOf(this.activeRun);
  }

  /** The position of a request among the blocks, or -1. */
  indexOfRequest(id) {
    return this.blocks.indexOf(this.#requests.get(id));
  }

  // --- user actions ---

  send(entry, isResent = false) {
    this.#unread.send(entry, isResent);
  }

  /** The response to a submitted input. The event stream may have delivered the input earlier. */
  accepted(entry, outcome, runId) {
    const input = this.#unread.withEntry(entry);
    if (input === undefined || input.stage !== SENDING) return;
    if (input.isResent && this.runs.hasInput(runId, input.text)) {
      this.#unread.drop(input);
      return;
    }
    input.runId = runId;
    const isWaiting = outcome === "new_run" && entry.delivery === "queue" && this.activeRun !== null && this.activeRun !== runId;
    if (!isWaiting) this.activeRun = runId;
    this.#setStage(input, isWaiting ? QUEUED : outcome === "new_run" ? STARTED : STEERED);
  }

  refused(entry) {
    const input = this.#unread.withEntry(entry);
    if (input !== undefined) this.#unread.drop(input);
  }

  /** The response of `GET /v1/runs/{id}`, for the tokens and the models of the run. Only known runs can be retried: a fork shows others. */
  setRun({ id, usage, answered_by: answeredBy }) {
    this.#requests.setKnown(id);
    const end = this.#ends.get(id);
    if (end !== undefined) Object.assign(end, { usage, answeredBy, isKnown: true, revision: end.revision + 1 });
  }

  /** The response to an answer, or the current state of a request that somebody else has answered. */
  answered(action) {
    this.#requests.answer(action.id, action);
  }

  // --- connection ---

  /** A new stream has started. It sends live text from its beginning. */
  resumed() {
    this.#isLive = true;
    this.#clearStreamed();
    for (const { output } of this.#calls.values()) output?.clear();
  }

  // --- events ---

  /** Text of the answer, or with `call_id` output of a tool call. */
  delta({ attempt, run_id: runId, call_id: callId, offset, text }) {
    if (attempt < this.#attempt || runId !== this.activeRun) return;
    this.#retry = null;
    const output = this.#calls.get(callId)?.output;
    if (offset === 0 && callId === undefined) this.#streamed = "";
    else if (offset === 0) output?.clear();
    if (callId === undefined) this.#streamed += text;
    else output?.add(text);
  }

  /** A request to the model has failed. The next one writes the answer from its beginning. */
  modelRetried({ run_id: runId, attempt, retry_in_seconds: seconds, reason }) {
    if (runId !== this.activeRun) return;
    this.#clearStreamed();
    this.#retry = `The model request failed: ${visibleText(reason)} Trying again after ${Math.ceil(seconds)} s (attempt ${attempt})…`;
    this.#announce(this.#retry);
  }

  event(event) {
    if (event.id <= this.position) return;
    this.position = event.id;
    if (event.run_id === this.activeRun) this.#retry = null;
    this.#handlers[event.type]?.(event);
  }

  #inputAccepted(event) {
    const input = this.#unread.accept(event, this.#isLive);
    const { retried_from: retriedFrom } = event.data;
    const isWaiting = this.activeRun !== null && this.activeRun !== event.run_id;
    const isSteering = this.runs.inputAccepted(event, isWaiting);
    if (!isWaiting) this.activeRun = event.run_id;
    if (retriedFrom !== undefined) this.#retried(retriedFrom);
    if (retriedFrom !== undefined) this.#setStage(input, RETRIED);
    else if (input.stage === SENDING) this.#setStage(input, isSteering ? STEERED : isWaiting ? QUEUED : STARTED);
  }

  #retried(runId) {
    this.#context.show(runId);
    const end = this.#ends.get(runId);
    if (end !== undefined && !end.isRetried) Object.assign(end, { isRetried: true, revision: end.revision + 1 });
  }

  #inputConsumed(event) {
    const input = this.#unread.take(event.data.input_id);
    if (input === undefined) return;
    const { step } = event.data;
    const read = step === undefined ? "Read" : `Read at step ${step}`;
    const stage = input.stage === QUEUED ? STARTED : input.stage;
    this.#context.add(event.run_id, this.#addInput(input, "read", withOrigin(input.isRemote, `${stage} · ${read}`)));
    this.#announce(`${input.isRemote ? "Input from another client" : "Your input"}: ${read}.`);
  }

  /** Withdrawn before a run has read it, discarded with its run, or dropped after its run has failed. */
  #inputDiscarded(event) {
    const { input_id: inputId, reason = "" } = event.data;
    const note = DISCARD_NOTES[reason] ?? `Discarded: ${reason}`;
    if (reason in DISCARD_NOTES) this.#inputRemoved(event.run_id);
    const input = this.#unread.take(inputId);
    if (input !== undefined) this.#addInput(input, "discarded", note);
    else if (!this.#context.drop(inputId)) return;
    this.#announce(`Input ${note}`);
  }

  /** A run whose inputs are all withdrawn or dropped cannot be retried. */
  #inputRemoved(runId) {
    this.runs.inputDiscarded(runId);
    const end = this.#ends.get(runId);
    if (end !== undefined) Object.assign(end, { hasInputs: this.runs.get(runId).inputs > 0, revision: end.revision + 1 });
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
    this.#note(event, `The run was requeued: ${event.data.reason ?? ""}`);
  }

  #message(event) {
    this.#clearStreamed();
    this.activeRun = event.run_id;
    this.#context.answered(event.run_id);
    const { text = "", mismatch = null, cut_off: cutOff = null, reasoning = "", sources = [] } = event.data;
    if (reasoning !== "") this.#add(event, { kind: "summary", text: "Reasoning", summary: reasoning });
    if (text.trim() === "" && mismatch === null && cutOff === null) return;
    this.#add(event, { kind: "answer", text, isPartial: false, mismatch, cutOff, sources });
    this.#announce([text, mismatch !== null && mismatchText(mismatch), cutOff !== null && cutOffText(cutOff)].filter(Boolean).join(" "));
  }

  #toolCall(event) {
    const { call_id: callId, name, arguments: callArguments } = event.data;
    const call = { name, arguments: callArguments ?? {}, result: null, images: [], state: "running", started: [], output: new LiveOutput() };
    const block = this.#add(event, { kind: "tool", ...call });
    this.#context.add(event.run_id, block);
    this.#calls.set(callId, block);
    this.#announce(`Calling the tool ${name}.`);
  }

  #toolStarted({ created_at: at, data: { call_id: callId, attempt, key } }) {
    const block = this.#calls.get(callId);
    // Another attempt runs the command again.
    if (block !== undefined) this.#setCall(block, { state: "running", started: [...block.started, { at, attempt, key }], output: new LiveOutput() });
  }

  #setCall(block, change) {
    Object.assign(block, change, { revision: block.revision + 1 });
  }

  #actionRequired(event) {
    const action = Requests.fromEvent(event);
    const { title, waiting } = kindOf(action);
    const call = this.#calls.get(action.call_id);
    if (call !== undefined) this.#setCall(call, { state: "waiting", waiting });
    this.#requests.add(this.#add(event, { kind: "action", action, isKnown: this.#isLive }));
    this.runs.waiting(event);
    this.#clearStreamed();
    this.#announce(`${title}${action.tool === null ? "" : ` for the tool ${action.tool}`}.`);
  }

  #actionResolved(event) {
    const { action_id: id, call_id: callId } = event.data;
    const block = this.#requests.get(id);
    this.#requests.answer(id, Requests.answerOf(event));
    const call = this.#calls.get(callId);
    if (call?.state === "waiting") this.#setCall(call, { state: answeredCall(event.data) });
    if (this.#requests.openOf(event.run_id).length === 0) this.#continued(event);
    if (block !== undefined) this.#announce(`${kindOf(block.action).name}: ${answerText(block.action)}.`);
  }

  #continued(event) {
    this.runs.continued(event);
    for (const call of this.#calls.values()) {
      if (call.state === "allowed" || call.state === "answered") this.#setCall(call, { state: "running" });
    }
  }

  #noteAdded(event) {
    const text = event.data.text ?? "";
    this.#add(event, { kind: "quote", text });
    this.#announce(`Note: ${text}`);
  }

  #toolResult(event) {
    const { call_id: callId, name, text, images = [] } = event.data;
    const block = this.#calls.get(callId) ?? this.#add(event, { kind: "tool", name, arguments: {}, started: [] });
    this.#calls.delete(callId);
    this.#setCall(block, { result: text ?? "", images, state: "done", output: null });
  }

  /** The other model writes the answer from its beginning. */
  #modelSwitched(event) {
    this.#clearStreamed();
    const { from = "", to = "", reason = "" } = event.data;
    this.#note(event, `Switched from ${visibleText(from)} to ${visibleText(to)}: ${visibleText(reason)}`);
  }

  #settingsIgnored(event) {
    const { model = "", settings = [] } = event.data;
    this.#note(event, `Not sent, because ${visibleText(model)} does not take it: ${visibleText(settings.join(", "))}.`);
  }

  #contextTrimmed(event) {
    const { dropped_turns: dropped = 0, cut_turns: cut = 0, omitted_files: omitted = 0 } = event.data;
    if (dropped > 0 || cut + omitted === 0) this.#note(event, leftOutText(dropped));
    if (cut > 0) this.#note(event, `${pluralize(cut, "text")} cut to fit the model's context.`);
    if (omitted > 0) this.#note(event, `${pluralize(omitted, "file")} left out to fit the model's context.`);
  }

  #contextCompacted(event) {
    const { dropped_turns: count, summary = "" } = event.data;
    if (summary === "") return this.#note(event, leftOutText(count ?? 0));
    const text = `${count === undefined ? "Earlier turns" : pluralize(count, "earlier turn")} summarised to fit the model's context.`;
    this.#add(event, { kind: "summary", text, summary });
    this.#announce(text);
  }

  #serverUnavailable(event) {
    const { name, reason = "" } = event.data;
    this.#note(event, `The tools of the MCP server ${visibleName(name ?? event.data.server_id ?? "")} are not available: ${visibleText(reason)}`);
  }

  #runFailed(event) {
    const { reason = "", next_run_id: next, refused_by_provider: isRefused } = event.data;
    this.#context.failed(event.run_id);
    if (isRefused) this.#context.leaveOut(event.run_id, REFUSED);
    const moved = next === undefined ? [] : this.#unread.ofRun(event.run_id);
    if (next !== undefined) this.runs.followUp(next, event, moved.length);
    this.#runEnded(event, "failed", `Failed: ${reason}`);
    if (next === undefined) return;
    this.activeRun = next;
    for (const input of moved) Object.assign(input, { runId: next, stage: MOVED });
    this.#note(event, `${pluralize(moved.length, "input")} moved to the next run.`);
  }

  #runEnded(event, state, text) {
    const wasActive = this.activeRun === null || this.activeRun === event.run_id;
    if (wasActive) this.#stopWriting(event);
    const durationMs = this.runs.ended(event, state);
    const hasInputs = this.runs.get(event.run_id)?.inputs > 0;
    const setup = this.runs.get(event.run_id)?.setup ?? null;
    const end = { kind: "end", state, text, durationMs, hasInputs, setup, usage: null, answeredBy: [], isKnown: this.#isLive, isRetried: false };
    this.#ends.set(event.run_id, this.#add(event, end));
    // The server starts the next run in the transaction that ends this one.
    if (wasActive) this.activeRun = this.runs.oldestPending;
    this.#announce(`Run: ${text}`);
  }

  /** Unfinished text and tool calls are marked as such: they are not stored. */
  #stopWriting(event) {
    for (const block of this.#calls.values()) Object.assign(block, { state: "unfinished", revision: block.revision + 1 });
    if (this.#streamed.trim() !== "") this.#add(event, { kind: "answer", text: this.streaming, isPartial: true, mismatch: null, cutOff: null, sources: [] });
    this.#clearStreamed();
    this.#calls.clear();
    this.#attempt = 0;
  }

  #setStage(input, stage) {
    input.stage = stage;
    this.#announce(`${stage}.`);
  }

  #clearStreamed() {
    this.#streamed = "";
  }

  #note(event, text) {
    this.#add(event, { kind: "note", text });
    this.#announce(text);
  }

  #addInput({ text, attachments, inputId, eventId, runId, at, actor }, state, note) {
    const source = { id: eventId, run_id: runId, created_at: at };
    return this.#add(source, { kind: "input", text, attachments, inputId, state, note, actor });
  }

  #add({ id, run_id: runId, created_at: at }, block) {
    const added = { ...block, eventId: id, runId, at, leftOut: null, canDrop: false, revision: 0 };
    this.blocks.push(added);
    return added;
  }

  #announce(text) {
    if (!this.#isLive) return;
    this.#announcements.push(text);
    if (this.#announcements.length > MAX_ANNOUNCEMENTS) this.#announcements.shift();
  }
}

/** For an answer that the model has to correct. */
export function mismatchText(reason) {
  return `Does not match the output schema: ${visibleText(reason)}`;
}

/** For an answer that ends before its end. */
export function cutOffText(reason) {
  return reason === "length" ? "Cut off: it reached the limit of output tokens" : "Cut off by the provider's content filter";
}

/** The state of a call whose request was closed, until the run continues. */
function answeredCall({ kind, state, resolution }) {
  if (state === "expired") return "expired";
  if (kind !== "approval") return "answered";
  return resolution?.decision === "deny" ? "denied" : "allowed";
}

function leftOutText(turns) {
  return `${pluralize(turns, "earlier turn")} removed to fit the model's context.`;
}
