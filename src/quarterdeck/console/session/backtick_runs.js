// Runs of backticks in a text. A code span ends at the next run of the same length.

export class BacktickRuns {
  #positions = new Map();
  #next = new Map();
  #lengths = new Map();

  constructor(text) {
    for (const { 0: run, index } of text.matchAll(/`+/g)) {
      this.#lengths.set(index, run.length);
      if (!this.#positions.has(run.length)) this.#positions.set(run.length, []);
      this.#positions.get(run.length).push(index);
    }
  }

  /** 1 inside a run, which can follow an escaped backtick. */
  lengthAt(index) {
    return this.#lengths.get(index) ?? 1;
  }

  /** Must be called with increasing indexes: each position is visited once, so the total time is linear. */
  closingIndex(index, length) {
    const positions = this.#positions.get(length) ?? [];
    let next = this.#next.get(length) ?? 0;
    while (next < positions.length && positions[next] <= index) next += 1;
    this.#next.set(length, next);
    return positions[next] ?? -1;
  }
}
