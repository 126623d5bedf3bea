// Runs of backticks. Code ends at the next run of the length that it began with.

export class Ticks {
  #places = new Map();
  #next = new Map();
  #lengths = new Map();

  constructor(text) {
    for (const { 0: run, index } of text.matchAll(/`+/g)) {
      this.#lengths.set(index, run.length);
      if (!this.#places.has(run.length)) this.#places.set(run.length, []);
      this.#places.get(run.length).push(index);
    }
  }

  /** 1 in the middle of a run, which is where an escape may leave us. */
  lengthAt(at) {
    return this.#lengths.get(at) ?? 1;
  }

  closing(at, length) {
    const places = this.#places.get(length) ?? [];
    let next = this.#next.get(length) ?? 0;
    // Asked from left to right, so no place is passed twice.
    while (next < places.length && places[next] <= at) next += 1;
    this.#next.set(length, next);
    return places[next] ?? -1;
  }
}
