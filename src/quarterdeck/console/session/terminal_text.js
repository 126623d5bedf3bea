// The output of a command as lines of styled text: colours and styles (SGR), and what progress bars use to write over a
// line. All other control sequences are removed. Nothing is rendered here.

// A control sequence (CSI), an operating system command or another string (title, link), another escape, or a character.
const TOKENS = /\x1b\[([0-9;:?<=>!]*)[ -/]*([@-~])|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)|\x1b[ -/]*[0-~]|\x1b|[\s\S]/gu;
// At the end of a piece: a sequence whose rest comes with the next piece.
const UNFINISHED = /\x1b(?:\[[0-9;:?<=>!]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)$/;
// A longer one is taken for text, so that it is not scanned again with every piece.
const MAX_UNFINISHED = 1000;
const MAX_LINES = 5000;
const TAB_WIDTH = 8;
const SILENT = /[\x00\x07\x0e\x0f]/;

/** Attributes of a style that a parameter of SGR sets. "Conceal" is left out: output must not hide text. */
const STYLES = {
  1: { isBold: true }, 2: { isDim: true }, 3: { isItalic: true }, 4: { isUnderlined: true }, 7: { isInverse: true }, 9: { isStruck: true },
  21: { isUnderlined: true }, 22: { isBold: false, isDim: false }, 23: { isItalic: false }, 24: { isUnderlined: false }, 27: { isInverse: false }, 29: { isStruck: false },
  39: { color: null }, 49: { background: null },
};
const PLAIN = Object.freeze({ color: null, background: null, isBold: false, isDim: false, isItalic: false, isUnderlined: false, isInverse: false, isStruck: false });

/** `write(text)` takes the next piece of the output. */
export class TerminalText {
  /** How many lines were dropped at the start. */
  dropped = 0;

  /** Cells `[character, style]` of each line. */
  #lines = [[]];
  #row = 0;
  #column = 0;
  #style = PLAIN;
  #rest = "";

  get lineCount() {
    return this.#isLastEmpty ? this.#lines.length - 1 : this.#lines.length;
  }

  /** The lines from `start` on as runs `[{text, style}]` of one style. */
  runs(start = 0) {
    return this.#lines.slice(start, this.lineCount).map(runsOf);
  }

  write(text) {
    const all = this.#rest + text;
    const end = all.slice(-MAX_UNFINISHED).search(UNFINISHED);
    const cut = end < 0 ? all.length : all.length - Math.min(all.length, MAX_UNFINISHED) + end;
    this.#rest = all.slice(cut);
    for (const [token, parameters, final] of all.slice(0, cut).matchAll(TOKENS)) {
      if (final !== undefined) this.#control(parameters, final);
      else if (!token.startsWith("\x1b")) this.#put(token);
    }
  }

  get #isLastEmpty() {
    return this.#lines.at(-1).length === 0;
  }

  #put(character) {
    if (character === "\n") this.#newLine();
    else if (character === "\r") this.#column = 0;
    else if (character === "\b") this.#column = Math.max(0, this.#column - 1);
    else if (character === "\t") do this.#write(" "); while (this.#column % TAB_WIDTH !== 0);
    else if (!SILENT.test(character)) this.#write(character);
  }

  #write(character) {
    this.#lines[this.#row][this.#column] = [character, this.#style];
    this.#column += 1;
  }

  #newLine() {
    this.#column = 0;
    this.#row += 1;
    if (this.#row < this.#lines.length) return;
    this.#lines.push([]);
    if (this.#lines.length <= MAX_LINES) return;
    // Half of them at once: dropping one for each line would take quadratic time.
    const count = MAX_LINES / 2;
    this.#lines.splice(0, count);
    this.#row -= count;
    this.dropped += count;
  }

  #control(parameters, final) {
    const count = Math.max(1, Number.parseInt(parameters) || 1);
    if (final === "m") this.#setStyle(parameters);
    else if (final === "K") this.#erase(parameters);
    else if (final === "A") this.#moveTo(this.#row - count, this.#column);
    else if (final === "B") this.#moveTo(this.#row + count, this.#column);
    else if (final === "C") this.#moveTo(this.#row, this.#column + count);
    else if (final === "D") this.#moveTo(this.#row, this.#column - count);
    else if (final === "E") this.#moveTo(this.#row + count, 0);
    else if (final === "F") this.#moveTo(this.#row - count, 0);
    else if (final === "G") this.#moveTo(this.#row, count - 1);
  }

  /** Never beyond what was written, so that a short sequence cannot create a long line. */
  #moveTo(row, column) {
    this.#row = Math.min(Math.max(0, row), this.#lines.length - 1);
    this.#column = Math.min(Math.max(0, column), this.#lines[this.#row].length);
  }

  #erase(parameters) {
    const line = this.#lines[this.#row];
    if (parameters === "2") this.#lines[this.#row] = Array.from({ length: this.#column }, () => [" ", PLAIN]);
    else if (parameters === "1") line.fill([" ", PLAIN], 0, this.#column + 1);
    else line.splice(this.#column);
  }

  #setStyle(parameters) {
    // `38:2::1:2:3` is the same as `38;2;1;2;3`; the colour space between them is left out.
    const numbers = parameters.replace(/:2::/g, ";2;").split(/[;:]/).map(Number);
    const style = { ...this.#style };
    while (numbers.length > 0) applyParameter(style, numbers);
    this.#style = Object.freeze(style);
  }
}

/** Takes one parameter, and the numbers of a colour that belong to it. */
function applyParameter(style, numbers) {
  const number = numbers.shift();
  if (number === 0) Object.assign(style, PLAIN);
  else if (number in STYLES) Object.assign(style, STYLES[number]);
  else if (number >= 30 && number <= 37) style.color = number - 30;
  else if (number >= 40 && number <= 47) style.background = number - 40;
  else if (number >= 90 && number <= 97) style.color = number - 82;
  else if (number >= 100 && number <= 107) style.background = number - 92;
  else if (number === 38) style.color = extendedColor(numbers) ?? style.color;
  else if (number === 48) style.background = extendedColor(numbers) ?? style.background;
}

/** A number from 0 to 15 for a colour of the theme, else `[red, green, blue]`. */
function extendedColor(numbers) {
  const kind = numbers.shift();
  if (kind === 2) return rgb(numbers.splice(0, 3));
  if (kind !== 5) return null;
  const index = numbers.shift();
  if (!(index >= 0 && index <= 255)) return null;
  if (index < 16) return index;
  if (index >= 232) return rgb([0, 0, 0].fill(8 + (index - 232) * 10));
  const level = (digit) => (digit === 0 ? 0 : 55 + digit * 40);
  const cube = index - 16;
  return rgb([Math.floor(cube / 36), Math.floor(cube / 6) % 6, cube % 6].map(level));
}

function rgb(values) {
  return values.length === 3 && values.every((value) => value >= 0 && value <= 255) ? values : null;
}

function runsOf(cells) {
  const runs = [];
  for (const [character, style] of cells) {
    const last = runs.at(-1);
    if (last?.style === style) last.text += character;
    else runs.push({ text: character, style });
  }
  return runs;
}
