// The output of a running command, in the pieces in which it came. Kept until the result arrives.

const MAX_CHARACTERS = 1_000_000;

export class LiveOutput {
  /** Changes if pieces were dropped. */
  generation = 0;
  pieces = [];

  #characters = 0;

  clear() {
    this.pieces = [];
    this.#characters = 0;
    this.generation += 1;
  }

  add(text) {
    this.pieces.push(text);
    this.#characters += text.length;
    if (this.#characters <= MAX_CHARACTERS) return;
    this.pieces.splice(0, Math.ceil(this.pieces.length / 2));
    this.#characters = this.pieces.reduce((sum, piece) => sum + piece.length, 0);
    this.generation += 1;
  }
}
