// The runs of a session, built from its events.

export class Runs {
  /** In order of creation. */
  all = [];
  /** Incremented with each change. */
  revision = 0;

  #byId = new Map();

  /** Returns whether the input steers an existing run; otherwise it starts a new one. */
  inputAccepted(event) {
    const run = this.#byId.get(event.run_id);
    const at = Date.parse(event.created_at);
    this.revision += 1;
    if (run === undefined) {
      this.#create(event.run_id, at, [event.data.text]);
      return false;
    }
    run.steered.push(at);
    run.texts.push(event.data.text);
    return true;
  }

  /** The run that takes over the unread inputs of a failed run. */
  followUp(runId, event) {
    this.#create(runId, Date.parse(event.created_at), []);
    this.revision += 1;
  }

  started(event) {
    this.#setState(event, "running");
  }

  requeued(event) {
    this.#setState(event, "queued");
  }

  /** Returns the total duration in milliseconds, or null if the run is unknown. */
  ended(event, state) {
    const run = this.#byId.get(event.run_id);
    this.revision += 1;
    if (run === undefined) return null;
    run.state = state;
    run.until = Date.parse(event.created_at);
    run.phases.at(-1).until = run.until;
    run.texts = [];
    return run.until - run.from;
  }

  /** Whether the run received this text. True for every ended run, because its texts are no longer kept. */
  hasInput(runId, text) {
    const run = this.#byId.get(runId);
    return run !== undefined && (run.until !== null || run.texts.includes(text));
  }

  #create(id, from, texts) {
    const run = {
      id,
      number: this.all.length + 1,
      state: "queued",
      from,
      until: null,
      phases: [{ state: "queued", from, until: null }],
      steered: [],
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
