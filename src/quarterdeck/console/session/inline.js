// What stands inside a line of Markdown: code, emphasis, links. One walk over the text: every step forward is made
// once, so a hostile text takes no longer than a kind one of its length.

import { el } from "../dom.js";
import { link, webAddress } from "./links.js";
import { Ticks } from "./ticks.js";

const ESCAPABLE = /[!-/:-@[-`{-~]/;
const MARKS = "\\`*_![]h";
const SPACE = /\s/;
const WORD = /[\p{L}\p{N}]/u;
const NO_ADDRESS = /[\s<>"`[\]]/;
// What ends a sentence, and not the address that it ends with.
const AFTER_ADDRESS = /[.,;:!?'")*_]/;
const BARE = /https?:\/\//y;
// Browsers lay out by recursion: what is nested without bound could end the tab.
const MOST_DEPTH = 16;

/** Nodes for a text. `budget.left` bounds how many elements may be made; when it is spent, the rest is text. */
export function inline(text, budget) {
  return new Walk(text, budget).nodes();
}

class Walk {
  #text;
  #budget;
  #at = 0;
  /** Where the text begins that is not yet among the parts. */
  #from = 0;
  /** Texts, and `{node, depth}`, in order. What turns out to belong together is taken out again and put into one. */
  #parts = [];
  /** Marks that may begin something: `{mark, place}`, where the place is its own among the parts. */
  #open = [];
  #counts = new Map();
  /** Those of them that may begin a link. */
  #brackets = [];
  #ticks;

  constructor(text, budget) {
    this.#text = text;
    this.#budget = budget;
    this.#ticks = new Ticks(text);
  }

  nodes() {
    const text = this.#text;
    while (this.#at < text.length && this.#budget.left > 0) {
      if (!MARKS.includes(text[this.#at]) || !this.#taken(text[this.#at])) this.#at += 1;
    }
    this.#at = text.length;
    this.#flush();
    return joined(this.#parts);
  }

  /** Whether the mark meant something; it is behind us then. */
  #taken(mark) {
    switch (mark) {
      case "\\": return this.#escape();
      case "`": return this.#code();
      case "*":
      case "_": return this.#emphasis(mark);
      case "!": return this.#text[this.#at + 1] === "[" && this.#begin("![", 2);
      case "[": return this.#begin("[", 1);
      case "]": return this.#endLink();
      default: return this.#bareAddress();
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
    const length = this.#ticks.lengthAt(this.#at);
    const end = this.#ticks.closing(this.#at, length);
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
    // Names with underscores in them are names.
    const inWord = mark === "_" && WORD.test(before) && WORD.test(after);
    if (length > 3 || inWord) {
      this.#at = end;
    } else if (!SPACE.test(before) && this.#counts.get(name) > 0) {
      this.#flush();
      this.#wrap(name, end, (children) => emphasised(length, children));
    } else if (!SPACE.test(after)) {
      this.#begin(name, length);
    } else {
      this.#at = end;
    }
    return true;
  }

  #endLink() {
    const name = this.#lastBracket();
    if (name === null) return false;
    const end = this.#text[this.#at + 1] === "(" ? this.#addressEnd(this.#at + 2) : -1;
    const address = end === -1 ? null : webAddress(this.#text.slice(this.#at + 2, end));
    if (address === null) {
      // It stays as it was written: brackets that are no link, or a link to where one may not go.
      this.#forget(name);
      return false;
    }
    this.#flush();
    this.#wrap(name, end + 1, (children) => {
      const label = children.length > 0 ? children : [address];
      return name === "![" ? link(address, "Image: ", label) : link(address, label);
    });
    return true;
  }

  /** Ends at every bracket, so what is looked at here is not looked at again. */
  #addressEnd(from) {
    let depth = 0;
    for (let at = from; at < this.#text.length; at += 1) {
      const one = this.#text[at];
      if (NO_ADDRESS.test(one)) return -1;
      if (one === "(") depth += 1;
      else if (one === ")") {
        if (depth === 0) return at;
        depth -= 1;
      }
    }
    return -1;
  }

  #bareAddress() {
    BARE.lastIndex = this.#at;
    if (!BARE.test(this.#text) || WORD.test(this.#text[this.#at - 1] ?? " ")) return false;
    if (this.#lastBracket() !== null) return false;
    let found = this.#at;
    while (found < this.#text.length && !NO_ADDRESS.test(this.#text[found])) found += 1;
    let end = found;
    while (AFTER_ADDRESS.test(this.#text[end - 1])) end -= 1;
    const shown = this.#text.slice(this.#at, end);
    const address = webAddress(shown);
    if (address === null) {
      this.#at = found;
      return true;
    }
    this.#flush();
    this.#put(link(address, shown));
    this.#skipTo(end);
    return true;
  }

  #begin(mark, length) {
    this.#flush();
    this.#open.push({ mark, place: this.#parts.length });
    if (isBracket(mark)) this.#brackets.push(mark);
    this.#parts.push(mark);
    this.#counts.set(mark, (this.#counts.get(mark) ?? 0) + 1);
    this.#skipTo(this.#at + length);
    return true;
  }

  /** What came since the last such mark becomes one node. */
  #wrap(mark, end, make) {
    const place = this.#forget(mark);
    const inside = this.#parts.splice(place + 1);
    const depth = inside.reduce((deepest, part) => Math.max(deepest, part.depth ?? 0), 0) + 1;
    if (depth > MOST_DEPTH) {
      // Whatever began before would hold this too, so nothing can come of it; looking again and again would take hours.
      this.#open = [];
      this.#brackets = [];
      this.#counts.clear();
      for (const part of inside) this.#parts.push(part);
      this.#at = end;
      return;
    }
    this.#parts.pop();
    this.#put(make(joined(inside)), depth);
    this.#skipTo(end);
  }

  /** The last such mark, and those behind it, begin nothing any more. Its place. */
  #forget(mark) {
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

/** Nodes, and texts that stand side by side as one: a million of them could not be handed over. */
function joined(parts) {
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

function emphasised(length, children) {
  if (length === 1) return el("em", {}, children);
  return el("strong", {}, length === 2 ? children : el("em", {}, children));
}
