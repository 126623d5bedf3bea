// The output of a command on a dark background, as it comes or complete.

import { el, fill } from "../dom.js";
import { pluralize } from "../format.js";
import { visibleText } from "../visible_text.js";
import { TerminalText } from "./terminal_text.js";

/** Of a long output only the end is shown at first. */
const COLLAPSED_LINES = 30;
const CLASSES = { isBold: "bold", isDim: "dim", isItalic: "italic", isUnderlined: "underlined", isStruck: "struck" };

/** A terminal with a command and its whole output. */
export function terminal(command, output) {
  const view = new TerminalView(command);
  view.write(output);
  view.finish();
  return view.node;
}

/** `write(text)` adds output; `finish()` is called after the last piece. */
export class TerminalView {
  #text = new TerminalText();
  #lines = el("div", { class: "terminal-lines" });
  #more = el("p", { class: "terminal-more" });
  #isExpanded = false;
  #isFinished = false;
  #box;

  constructor(command) {
    const prompt = el("div", { class: "prompt" }, el("span", { "aria-hidden": "true" }, "$ "), command.split("\n").map(visibleText).join("\n"));
    this.#box = el("pre", { class: "terminal", tabindex: "0", role: "group", "aria-label": "Terminal" }, prompt, this.#more, this.#lines);
    this.node = el("div", { class: "terminal-box" }, this.#box);
  }

  write(text) {
    this.#text.write(text);
    this.#draw();
  }

  finish() {
    this.#isFinished = true;
    this.#draw();
  }

  #draw() {
    const { dropped, lineCount } = this.#text;
    const start = this.#isExpanded ? 0 : Math.max(0, lineCount - COLLAPSED_LINES);
    fill(this.#lines, this.#text.runs(start).map(line));
    const hidden = start + dropped;
    const showAll = () => {
      this.#isExpanded = true;
      this.#draw();
      this.#box.focus({ preventScroll: true });
    };
    const button = el("button", { type: "button", class: "small", on: { click: showAll } }, `Show all ${pluralize(lineCount, "line")}`);
    fill(this.#more, hidden > 0 && (this.#isFinished && start > 0 ? button : `… ${pluralize(hidden, "earlier line")}`));
    this.#more.hidden = hidden === 0;
    if (!this.#isFinished) this.#box.scrollTop = this.#box.scrollHeight;
  }
}

function line(runs) {
  // An empty line has the height of a line.
  return el("div", {}, runs.length === 0 ? "\n" : runs.map(span));
}

/** Dark text on the colour of the text. */
function inverse({ color }) {
  return { color: "inverse", background: Number.isInteger(color) ? `fg-${color}` : (color ?? "inverse") };
}

function span({ text, style }) {
  const visible = visibleText(text);
  const { color, background } = style.isInverse ? inverse(style) : style;
  const names = Object.entries(CLASSES).filter(([name]) => style[name]).map(([, name]) => name);
  for (const [prefix, value] of [["fg", color], ["bg", background]]) {
    if (value !== null && !Array.isArray(value)) names.push(`${prefix}-${value}`);
  }
  if (names.length === 0 && color === null && background === null) return visible;
  const node = el("span", { class: names.length > 0 && names.join(" ") }, visible);
  if (Array.isArray(color)) node.style.color = `rgb(${color.join(" ")})`;
  if (Array.isArray(background)) node.style.backgroundColor = `rgb(${background.join(" ")})`;
  return node;
}
