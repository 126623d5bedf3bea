// The runs of a session, built from its events.

export class Runs {
  /** In order of creation. */
  all = [];
  /** Incremented with each change. */
  revision = 0;

  #byId = new Map();
  #ended = 0;

  /** Returns whether the input steers an existing run. Otherwise it creates one, which waits if `isPending`. */
  inputAccepted(event, isPending) {
    const run = this.#byId.get(event.run_id);
    const at = Date.parse(event.created_at);
    this.revision += 1;
    if (run === undefined) {
      this.#create(event.run_id, at, [event.data.text], isPending ? "pending" : "queued", this.#isBatch(event.data));
      return false;
    }
    run.steered.push(at);
    run.inputs += 1;
    run.texts.push(event.data.text);
    return true;
  }

  /** The run that takes over the unread inputs of a failed run. */
  followUp(runId, event, count) {
    const failed = this.#byId.get(event.run_id);
    this.#create(runId, Date.parse(event.created_at), [], "queued", failed?.isBatch ?? false);
    this.#byId.get(runId).inputs = count;
    if (failed !== undefined) failed.inputs -= count;
    this.revision += 1;
  }

  /** The run that starts when the active one ends, or null. */
  get oldestPending() {
    return this.all.slice(this.#firstOpen()).find((run) => run.state === "pending")?.id ?? null;
  }

  /** An input was withdrawn or dropped: a retry does not repeat it. */
  inputDiscarded(runId) {
    const run = this.#byId.get(runId);
    if (run !== undefined) run.inputs -= 1;
  }

  get(runId) {
    return this.#byId.get(runId) ?? null;
  }

  /** Whether a run has not ended yet. */
  get isActive() {
    return this.#firstOpen() < this.all.length;
  }

  /** `data`: model, settings and skill versions of the run. They stay the same over all attempts. */
  started(event) {
    this.#setState(event, "running");
    const run = this.#byId.get(event.run_id);
    if (run !== undefined) run.setup = event.data;
  }

  /** The run waits for an answer and uses no worker. */
  waiting(event) {
    if (this.#byId.get(event.run_id)?.state !== "waiting") this.#setState(event, "waiting");
  }

  requeued(event) {
    this.#setState(event, "queued");
  }

  /** All requests of a waiting run are answered. */
  continued(event) {
    if (this.#byId.get(event.run_id)?.state === "waiting") this.#setState(event, "queued");
  }

  /** Returns the duration in milliseconds, or null if the run is unknown or has never started. */
  ended(event, state) {
    const run = this.#byId.get(event.run_id);
    this.revision += 1;
    if (run === undefined) return null;
    run.state = state;
    run.until = Date.parse(event.created_at);
    run.phases.at(-1).until = run.until;
    run.texts = [];
    return runningMs(run);
  }

  /** Whether the run received this text. True for every ended run, because its texts are no longer kept. */
  hasInput(runId, text) {
    const run = this.#byId.get(runId);
    return run !== undefined && (run.until !== null || run.texts.includes(text));
  }

  /** The index of the first run that has not ended. It only grows, so the total time is linear. */
  #firstOpen() {
    while (this.#ended < this.all.length && this.all[this.#ended].until !== null) this.#ended += 1;
    return this.#ended;
  }

  /** Whether the run of this input asks its model by batches. A retry does what the first run did. */
  #isBatch({ priority, retried_from: retriedFrom }) {
    return priority === "batch" || (this.#byId.get(retriedFrom)?.isBatch ?? false);
  }

  #create(id, from, texts, state, isBatch) {
    const run = {
      id,
      number: this.all.length + 1,
      state,
      from,
      until: null,
      phases: [{ state: "queued", from, until: null }],
      steered: [],
      setup: null,
      isBatch,
      /** The number of inputs that a retry would repeat. */
      inputs: texts.length,
      texts,
    };
    this.#byId.set(id, run);
    this.all.push(run);
  }

  #setState(event, state) {
    const run = this.#byId.get(event.run_id);
    this.revision += 1;
    if (run === undefined) return;
    const at = Date.parse(event.created_at);
    run.state = state;
    run.phases.at(-1).until = at;
    run.phases.push({ state, from: at, until: null });
  }
}

/** The time since a run has first started, without the time in which it waited for answers or batches. Null if it has not started. */
export function runningMs(run) {
  const now = run.until ?? Date.now();
  const start = run.phases.find((phase) => phase.state === "running")?.from;
  const isWait = ({ state, from }) => state === "waiting" || (run.isBatch && state === "queued" && from > start);
  const waited = run.phases.filter(isWait).reduce((sum, { from, until }) => sum + (until ?? now) - from, 0);
  return start === undefined ? null : Math.max(now - start - waited, 0);
}
