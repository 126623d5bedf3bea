// The runs of a session as its log tells them: when each waited, worked, was steered, and how it ended. No drawing.

export class Runs {
  /** In the order in which they began. */
  all = [];
  /** Counts changes, so that who draws knows. */
  revision = 0;

  #byId = new Map();

  /** Whether the input steers a run that is there already. Otherwise it begins one. */
  accepted(event) {
    const run = this.#byId.get(event.run_id);
    const at = Date.parse(event.created_at);
    this.revision += 1;
    if (run === undefined) {
      this.#begin(event.run_id, at, [event.data.text]);
      return false;
    }
    run.steered.push(at);
    run.texts.push(event.data.text);
    return true;
  }

  /** The inputs that a failed run had not taken up have a new one. */
  handedOn(runId, event) {
    this.#begin(runId, Date.parse(event.created_at), []);
    this.revision += 1;
  }

  started(event) {
    this.#goOn(event, "running");
  }

  requeued(event) {
    this.#goOn(event, "queued");
  }

  /** How long it took in all, in milliseconds; null if its beginning is not known. */
  ended(event, state) {
    const run = this.#byId.get(event.run_id);
    this.revision += 1;
    if (run === undefined) return null;
    run.state = state;
    run.until = Date.parse(event.created_at);
    run.parts.at(-1).until = run.until;
    run.texts = [];
    return run.until - run.from;
  }

  /** Whether this run was given this text. Of those that have ended it is no longer known. */
  holds(runId, text) {
    const run = this.#byId.get(runId);
    return run !== undefined && (run.until !== null || run.texts.includes(text));
  }

  #begin(id, from, texts) {
    const run = {
      id,
      number: this.all.length + 1,
      state: "queued",
      from,
      until: null,
      parts: [{ state: "queued", from, until: null }],
      steered: [],
      texts,
    };
    this.#byId.set(id, run);
    this.all.push(run);
  }

  #goOn(event, state) {
    const run = this.#byId.get(event.run_id);
    this.revision += 1;
    if (run === undefined) return;
    const at = Date.parse(event.created_at);
    run.state = state;
    run.parts.at(-1).until = at;
    run.parts.push({ state, from: at, until: null });
  }
}
