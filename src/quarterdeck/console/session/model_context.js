// Which turns of a run the model no longer sees, although the log keeps them.

export const REFUSED = "refused by the provider";

export class ModelContext {
  /** The blocks of each run since its last answer. */
  #unanswered = new Map();
  /** The inputs that each run has read. */
  #inputs = new Map();
  #inputsById = new Map();

  /** An input that was read, or a tool call. */
  add(runId, block) {
    append(this.#unanswered, runId, block);
    if (block.kind !== "input") return;
    append(this.#inputs, runId, block);
    this.#inputsById.set(block.inputId, block);
  }

  answered(runId) {
    this.#unanswered.delete(runId);
  }

  /** The turns of this run since its last answer are no longer sent to the model. */
  leaveOut(runId, reason) {
    for (const block of this.#unanswered.get(runId) ?? []) leaveOut(block, reason);
  }

  /** What the provider refused is sent again, because the run is retried. */
  show(runId) {
    for (const block of this.#unanswered.get(runId) ?? []) {
      if (block.leftOut === REFUSED) Object.assign(block, { leftOut: null, canDrop: block.kind === "input", revision: block.revision + 1 });
    }
  }

  /** One input is no longer sent to the model. Returns whether it was known. */
  drop(inputId) {
    const block = this.#inputsById.get(inputId);
    if (block !== undefined) leaveOut(block, "removed");
    return block !== undefined;
  }

  /** Inputs of a failed run can be dropped. */
  failed(runId) {
    for (const block of this.#inputs.get(runId) ?? []) Object.assign(block, { canDrop: true, revision: block.revision + 1 });
  }
}

function append(map, key, value) {
  if (map.has(key)) map.get(key).push(value);
  else map.set(key, [value]);
}

function leaveOut(block, reason) {
  Object.assign(block, { leftOut: block.leftOut ?? reason, canDrop: false, revision: block.revision + 1 });
}
