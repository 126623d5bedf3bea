// Inline Markdown: code, emphasis, links. Parses the text in one pass, so the time is linear for any input.

import { el } from "../dom.js";
import { BacktickRuns } from "./backtick_runs.js";
import { link, webUrl } from "./links.js";

const ESCAPABLE = /[!-/:-@[-`{-~]/;
const MARKS = "\\`*_![]h";
const SPACE = /\s/;
const WORD = /[\p{L}\p{N}]/u;
const URL_END = /[\s<>"`[\]]/;
// Punctuation after a bare URL belongs to the sentence, not to the URL.
const AFTER_URL = /[.,;:!?'")*_]/;
const BARE_URL = /https?:\/\//y;
// Browsers lay out nested elements recursively; unlimited nesting can crash the tab.
const MAX_DEPTH = 16;

/** Returns nodes. `budget.left` limits the number of elements; the rest of the text stays plain. */
export function inline(text, budget) {
  return new InlineParser(text, budget).nodes();
}

class InlineParser {
  #text;
  #budget;
  #at = 0;
  /** The start of the text that is not yet in `#parts`. */
  #from = 0;
  /** Strings and `{node, depth}` in order. When a closing mark is found, the parts since its opening mark are wrapped. */
  #parts = [];
  /** Opening marks without a closing mark yet: `{mark, place}`, `place` is the index in `#parts`. */
  #open = [];
  #counts = new Map();
  /** The opening marks that can start a link. */
  #brackets = [];
  #backticks;

  constructor(text, budget) {
    this.#text = text;
    this.#budget = budget;
    this.#backticks = new BacktickRuns(text);
  }

  nodes() {
    const text = this.#text;
    while (this.#at < text.length && this.#budget.left > 0) {
      if (!MARKS.includes(text[this.#at]) || !this.#parseMark(text[this.#at])) this.#at += 1;
    }
    this.#at = text.length;
    this.#flush();
    return joinText(this.#parts);
  }

  /** Returns whether the mark was consumed. */
  #parseMark(mark) {
    switch (mark) {
      case "\\": return this.#escape();
      case "`": return this.#code();
      case "*":
      case "_": return this.#emphasis(mark);
      case "!": return this.#text[this.#at + 1] === "[" && this.#openMark("![", 2);
      case "[": return this.#openMark("[", 1);
      case "]": return this.#endLink();
      default: return this.#bareUrl();
    }
  }

  #escape() {
    if (!ESCAPABLE.test(this.#text[this.#at + 1] ?? "")) return false;
    this.#flush();
    this.#from = this.#at + 1;
    this.#at += 2;
    return true;
  }

  #code() {
    const length = this.#backticks.lengthAt(this.#at);
    const end = this.#backticks.closingIndex(this.#at, length);
    if (end === -1) {
      this.#at += length;
      return true;
    }
    const inside = this.#text.slice(this.#at + length, end);
    const isPadded = inside.startsWith(" ") && inside.endsWith(" ") && inside.trim() !== "";
    this.#flush();
    this.#put(el("code", {}, isPadded ? inside.slice(1, -1) : inside));
    this.#skipTo(end + length);
    return true;
  }

  #emphasis(mark) {
    const text = this.#text;
    let end = this.#at;
    while (text[end] === mark) end += 1;
    const length = end - this.#at;
    const before = text[this.#at - 1] ?? " ";
    const after = text[end] ?? " ";
    const name = mark.repeat(Math.min(length, 4));
    // Underscores inside a word, as in snake_case, are not emphasis.
    const inWord = mark === "_" && WORD.test(before) && WORD.test(after);
    if (length > 3 || inWord) {
      this.#at = end;
    } else if (!SPACE.test(before) && this.#counts.get(name) > 0) {
      this.#flush();
      this.#wrap(name, end, (children) => emphasis(length, children));
    } else if (!SPACE.test(after)) {
      this.#openMark(name, length);
    } else {
      this.#at = end;
    }
    return true;
  }

  #endLink() {
    const name = this.#lastBracket();
    if (name === null) return false;
    const end = this.#text[this.#at + 1] === "(" ? this.#urlEnd(this.#at + 2) : -1;
    const url = end === -1 ? null : webUrl(this.#text.slice(this.#at + 2, end));
    if (url === null) {
      // Not a link, or a link with a forbidden scheme: keep the text as it is.
      this.#closeMark(name);
      return false;
    }
    this.#flush();
    this.#wrap(name, end + 1, (children) => {
      const label = children.length > 0 ? children : [url];
      return name === "![" ? link(url, "Image: ", label) : link(url, label);
    });
    return true;
  }

  /** Stops at every bracket, so no character is scanned twice. */
  #urlEnd(from) {
    let depth = 0;
    for (let at = from; at < this.#text.length; at += 1) {
      const one = this.#text[at];
      if (URL_END.test(one)) return -1;
      if (one === "(") depth += 1;
      else if (one === ")") {
        if (depth === 0) return at;
        depth -= 1;
      }
    }
    return -1;
  }

  #bareUrl() {
    BARE_URL.lastIndex = this.#at;
    if (!BARE_URL.test(this.#text) || WORD.test(this.#text[this.#at - 1] ?? " ")) return false;
    if (this.#lastBracket() !== null) return false;
    let found = this.#at;
    while (found < this.#text.length && !URL_END.test(this.#text[found])) found += 1;
    let end = found;
    while (AFTER_URL.test(this.#text[end - 1])) end -= 1;
    const shown = this.#text.slice(this.#at, end);
    const url = webUrl(shown);
    if (url === null) {
      this.#at = found;
      return true;
    }
    this.#flush();
    this.#put(link(url, shown));
    this.#skipTo(end);
    return true;
  }

  #openMark(mark, length) {
    this.#flush();
    this.#open.push({ mark, place: this.#parts.length });
    if (isBracket(mark)) this.#brackets.push(mark);
    this.#parts.push(mark);
    this.#counts.set(mark, (this.#counts.get(mark) ?? 0) + 1);
    this.#skipTo(this.#at + length);
    return true;
  }

  /** Wraps the parts since the last such opening mark into one node. */
  #wrap(mark, end, make) {
    const place = this.#closeMark(mark);
    const inside = this.#parts.splice(place + 1);
    const depth = inside.reduce((deepest, part) => Math.max(deepest, part.depth ?? 0), 0) + 1;
    if (depth > MAX_DEPTH) {
      // Every enclosing mark would be too deep as well. Dropping them all keeps the time linear.
      this.#open = [];
      this.#brackets = [];
      this.#counts.clear();
      for (const part of inside) this.#parts.push(part);
      this.#at = end;
      return;
    }
    this.#parts.pop();
    this.#put(make(joinText(inside)), depth);
    this.#skipTo(end);
  }

  /** Removes the last such opening mark and all after it. Returns its index in `#parts`. */
  #closeMark(mark) {
    for (;;) {
      const found = this.#open.pop();
      this.#counts.set(found.mark, this.#counts.get(found.mark) - 1);
      if (isBracket(found.mark)) this.#brackets.pop();
      if (found.mark === mark) return found.place;
    }
  }

  #lastBracket() {
    return this.#brackets.at(-1) ?? null;
  }

  #put(node, depth = 1) {
    this.#parts.push({ node, depth });
    this.#budget.left -= 1;
  }

  #flush() {
    if (this.#from < this.#at) this.#parts.push(this.#text.slice(this.#from, this.#at));
    this.#from = this.#at;
  }

  #skipTo(at) {
    this.#at = at;
    this.#from = at;
  }
}

function isBracket(mark) {
  return mark === "[" || mark === "![";
}

/** Joins adjacent strings: `append` fails with too many arguments. */
function joinText(parts) {
  const nodes = [];
  let texts = [];
  for (const part of [...parts, null]) {
    if (typeof part === "string") {
      texts.push(part);
      continue;
    }
    if (texts.length > 0) nodes.push(texts.join(""));
    texts = [];
    if (part !== null) nodes.push(part.node);
  }
  return nodes;
}

function emphasis(length, children) {
  if (length === 1) return el("em", {}, children);
  return el("strong", {}, length === 2 ? children : el("em", {}, children));
}
