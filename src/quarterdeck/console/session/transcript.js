// The blocks of a conversation on the page: a part of them at a time, which follows the reader. At the end it follows
// what comes instead.

import { el, fill } from "../dom.js";
import { drawn, redrawn, streamingAnswer, waitingInput } from "./blocks.js";

// How many blocks are drawn at first, and at most.
const STEP = 80;
const MOST = 240;
// So near to the end the reader is at the end: a finger does not hit the last pixel.
const NEAR_PIXELS = 120;

export class Transcript {
  /** The reader is at the end and stays there. */
  atEnd = true;

  #conversation;
  #from = 0;
  /** `{node, revision}` of the blocks from `#from` on. */
  #shown = [];
  #earlier = el("button", { type: "button", class: "small", on: { click: () => this.#goUp() } }, "Show earlier");
  #later = el("button", { type: "button", class: "small", on: { click: () => this.#goDown() } }, "Show later");
  #list = el("div", { class: "blocks" });
  #tail = el("div", { class: "tail" });
  #tailOf = null;

  constructor(conversation, signal, moved) {
    this.#conversation = conversation;
    const parts = [this.#earlier, this.#list, this.#later, this.#tail];
    this.node = el("section", { class: "transcript", "aria-label": "Transcript" }, parts);
    const scrolled = () => {
      this.#scrolled();
      moved();
    };
    window.addEventListener("scroll", scrolled, { signal, passive: true });
    window.addEventListener("resize", () => this.#stay(), { signal });
    // Who opens something wants to read it: the page must not run off below.
    this.node.addEventListener("toggle", scrolled, { capture: true });
  }

  /** Bring the page up to the conversation. Called at most once a frame. */
  draw() {
    const { blocks } = this.#conversation;
    for (const [at, one] of this.#shown.entries()) {
      const block = blocks[this.#from + at];
      const { revision } = block;
      if (revision !== one.revision) this.#shown[at] = { node: redrawn(one.node, block), revision };
    }
    if (this.atEnd) this.#show(blocks.length - this.#from > MOST ? blocks.length - STEP : this.#from, blocks.length);
    else this.#show(this.#from, Math.max(this.#to, Math.min(blocks.length, this.#from + MOST)));
    this.#drawTail();
    this.#stay();
  }

  toEnd() {
    this.atEnd = true;
    this.draw();
  }

  get #to() {
    return this.#from + this.#shown.length;
  }

  /** Draw the blocks between these two; those that are drawn already stay as they are. */
  #show(from, to) {
    const { blocks } = this.#conversation;
    const kept = new Map(this.#shown.map((one, at) => [this.#from + at, one]));
    const fresh = (block) => ({ node: drawn(block), revision: block.revision });
    const shown = blocks.slice(from, to).map((block, at) => kept.get(from + at) ?? fresh(block));
    const wanted = new Set(shown.map((one) => one.node));
    for (const { node } of this.#shown) if (!wanted.has(node)) node.remove();
    let next = null;
    for (const { node } of shown.toReversed()) {
      if (node.parentNode !== this.#list || node.nextSibling !== next) this.#list.insertBefore(node, next);
      next = node;
    }
    this.#from = from;
    this.#shown = shown;
    this.#earlier.hidden = from === 0;
    this.#later.hidden = to === blocks.length;
  }

  /** Only what changed: what is being written changes twenty times a second, and the rest should not flicker. */
  #drawTail() {
    const { waiting, streaming } = this.#conversation;
    this.#tail.hidden = this.#to < this.#conversation.blocks.length;
    const now = JSON.stringify([waiting, streaming]);
    if (now === this.#tailOf) return;
    this.#tailOf = now;
    fill(this.#tail, streaming !== "" && streamingAnswer(streaming), waiting.map(waitingInput));
  }

  #scrolled() {
    const page = document.scrollingElement;
    const below = page.scrollHeight - page.scrollTop - page.clientHeight;
    this.atEnd = this.#to === this.#conversation.blocks.length && below < NEAR_PIXELS;
    if (!this.#earlier.hidden && this.#earlier.getBoundingClientRect().bottom > -page.clientHeight) this.#goUp();
    else if (!this.#later.hidden && this.#later.getBoundingClientRect().top < 2 * page.clientHeight) this.#goDown();
  }

  #goUp() {
    const from = Math.max(0, this.#from - STEP);
    this.#keepingPlace(() => this.#show(from, Math.min(this.#to, from + MOST)));
  }

  #goDown() {
    const to = Math.min(this.#conversation.blocks.length, this.#to + STEP);
    this.#keepingPlace(() => this.#show(Math.max(this.#from, to - MOST), to));
  }

  /** What the reader looks at stays where it is on the screen. */
  #keepingPlace(change) {
    const seen = this.#shown.find(({ node }) => node.getBoundingClientRect().bottom > 0)?.node;
    const before = seen?.getBoundingClientRect().top;
    change();
    this.#drawTail();
    if (seen?.isConnected) window.scrollBy({ top: seen.getBoundingClientRect().top - before, behavior: "instant" });
  }

  #stay() {
    if (this.atEnd) window.scrollTo({ top: document.scrollingElement.scrollHeight, behavior: "instant" });
  }
}
