// The requests of a session's runs, built from its events.

export class Requests {
  /** The block of each request. */
  #blocks = new Map();
  #open = new Set();

  /** The request of an event `action.required`. */
  static fromEvent({ session_id: sessionId, run_id: runId, created_at: createdAt, data }) {
    const { action_id: id, ...request } = data;
    const answer = { state: "open", resolved_at: null, resolved_by: null, resolution: null };
    return { tool: null, arguments: null, reached: null, ...request, id, session_id: sessionId, run_id: runId, created_at: createdAt, ...answer };
  }

  /** The answer of an event `action.resolved`. */
  static answerOf({ created_at: at, data: { state, resolution = null, resolved_by: by = null } }) {
    return { state, resolution, resolved_by: by, resolved_at: at };
  }

  add(block) {
    this.#blocks.set(block.action.id, block);
    this.#open.add(block);
  }

  get(id) {
    return this.#blocks.get(id);
  }

  /** The open requests of a run. */
  openOf(runId) {
    return [...this.#open].map((block) => block.action).filter((action) => action.run_id === runId);
  }

  /** Stores the first answer: the response to it and its event both contain it. */
  answer(id, answer) {
    const block = this.#blocks.get(id);
    if (block === undefined || !this.#open.delete(block)) return;
    Object.assign(block, { action: { ...block.action, ...answer }, revision: block.revision + 1 });
  }

  /** A fork contains requests of runs of the original session. They cannot be answered there. */
  setKnown(runId) {
    for (const block of this.#open) {
      if (block.runId === runId && !block.isKnown) Object.assign(block, { isKnown: true, revision: block.revision + 1 });
    }
  }
}
