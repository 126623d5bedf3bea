// The rendered conversation. Only a window of the blocks is in the DOM; it follows the scroll position, or the end of
// the conversation while the user is there.

import { el, fill } from "../dom.js";
import { renderBlock, StreamingAnswer, updateBlock } from "./blocks.js";
import { updateOutput } from "./tool_card.js";

const PAGE_SIZE = 80;
const MAX_BLOCKS = 240;
// Within this distance the user counts as being at the end.
const END_PIXELS = 120;

export class Transcript {
  isAtEnd = true;

  #conversation;
  #from = 0;
  /** `{node, revision}` of the rendered blocks, starting with block `#from`. */
  #rendered = [];
  #earlier = el("button", { type: "button", class: "small", on: { click: () => this.#showEarlier() } }, "Show earlier");
  #later = el("button", { type: "button", class: "small", on: { click: () => this.#showLater() } }, "Show later");
  #list = el("div", { class: "blocks" });
  #streaming = new StreamingAnswer();
  #streamed = null;
  /** Not announced: the announcer of the page tells each step. */
  #working = el("p", { class: "working" });
  /** Inputs that no run has read. Not redrawn while text is streamed: their buttons keep focus and clicks. */
  #pending = el("div", { class: "blocks" });
  #pendingState = null;
  #tail = el("div", { class: "tail" }, this.#streaming.node, this.#working, this.#pending);
  #actions;
  #lastTop = 0;

  /** `actions`: see `renderBlock`. */
  constructor(conversation, actions, signal, onScroll) {
    this.#conversation = conversation;
    this.#actions = actions;
    const parts = [this.#earlier, this.#list, this.#later, this.#tail];
    this.node = el("section", { class: "transcript", "aria-label": "Transcript" }, parts);
    const scrolled = () => {
      this.#scrolled();
      onScroll();
    };
    window.addEventListener("scroll", scrolled, { signal, passive: true });
    window.addEventListener("resize", () => this.#scrollToEnd(), { signal });
    // Opening a tool call moves the end away: do not scroll after it.
    const toggled = () => {
      this.isAtEnd = this.#isNearEnd();
      onScroll();
    };
    this.node.addEventListener("toggle", toggled, { capture: true });
  }

  /** Renders the current state of the conversation. Call at most once per frame. */
  draw() {
    const { blocks } = this.#conversation;
    for (const [index, { node, revision }] of this.#rendered.entries()) {
      const block = blocks[this.#from + index];
      if (block.revision !== revision) this.#rendered[index] = { node: updateBlock(node, block, this.#actions), revision: block.revision };
      else if (block.state === "running") updateOutput(block);
    }
    if (this.isAtEnd) this.#show(blocks.length - this.#from > MAX_BLOCKS ? blocks.length - PAGE_SIZE : this.#from, blocks.length);
    else this.#show(this.#from, Math.max(this.#to, Math.min(blocks.length, this.#from + MAX_BLOCKS)));
    this.#drawTail();
    this.#scrollToEnd();
  }

  jumpToEnd() {
    this.isAtEnd = true;
    this.draw();
  }

  /** Scrolls to a block and moves the focus into it. */
  showBlock(index) {
    this.isAtEnd = false;
    const { length } = this.#conversation.blocks;
    const from = index >= this.#from && index < this.#to ? this.#from : Math.max(0, index - PAGE_SIZE / 2);
    this.#show(from, Math.max(this.#to > index ? this.#to : 0, Math.min(length, from + PAGE_SIZE)));
    this.#drawTail();
    const { node } = this.#rendered[index - this.#from];
    node.scrollIntoView({ block: "center", behavior: "instant" });
    this.isAtEnd = this.#isNearEnd();
    node.querySelector("[tabindex]")?.focus({ preventScroll: true });
  }

  get #to() {
    return this.#from + this.#rendered.length;
  }

  /** Renders blocks `from` to `to`. Nodes that are already in the DOM are kept. */
  #show(from, to) {
    const { blocks } = this.#conversation;
    const kept = new Map(this.#rendered.map((one, index) => [this.#from + index, one]));
    const render = (block) => ({ node: renderBlock(block, this.#actions), revision: block.revision });
    const rendered = blocks.slice(from, to).map((block, index) => kept.get(from + index) ?? render(block));
    const wanted = new Set(rendered.map((one) => one.node));
    for (const { node } of this.#rendered) if (!wanted.has(node)) node.remove();
    let next = null;
    for (const { node } of rendered.toReversed()) {
      if (node.parentNode !== this.#list || node.nextSibling !== next) this.#list.insertBefore(node, next);
      next = node;
    }
    this.#from = from;
    this.#rendered = rendered;
    this.#earlier.hidden = from === 0;
    this.#later.hidden = to === blocks.length;
  }

  /** The streaming answer changes up to twenty times a second, so each part is drawn only if it has changed. */
  #drawTail() {
    const { activeRun, blocks, pending, progress, streaming } = this.#conversation;
    this.#tail.hidden = this.#to < blocks.length;
    // A run can be retried only while no other one is active.
    this.node.classList.toggle("busy", activeRun !== null);
    if (streaming !== this.#streamed) this.#streaming.update(streaming);
    this.#streamed = streaming;
    this.#working.hidden = progress === null;
    if (this.#working.textContent !== progress) this.#working.textContent = progress;
    const state = JSON.stringify(pending);
    if (state === this.#pendingState) return;
    this.#pendingState = state;
    fill(this.#pending, pending.map((block) => renderBlock(block, this.#actions)));
  }

  /** Whether the end of the rendered blocks is in sight. Blocks that are not rendered yet do not count. */
  #isNearEnd() {
    const page = document.scrollingElement;
    return this.#later.hidden && page.scrollHeight - page.scrollTop - page.clientHeight < END_PIXELS;
  }

  /** Only scrolling up leaves the end: the page may have grown since it was scrolled to its end. */
  #scrolled() {
    const page = document.scrollingElement;
    if (this.#isNearEnd()) this.isAtEnd = true;
    else if (page.scrollTop < this.#lastTop) this.isAtEnd = false;
    this.#lastTop = page.scrollTop;
    if (!this.#earlier.hidden && this.#earlier.getBoundingClientRect().bottom > -page.clientHeight) this.#showEarlier();
    else if (!this.#later.hidden && this.#later.getBoundingClientRect().top < 2 * page.clientHeight) this.#showLater();
  }

  #showEarlier() {
    const from = Math.max(0, this.#from - PAGE_SIZE);
    this.#keepPosition(() => this.#show(from, Math.min(this.#to, from + MAX_BLOCKS)));
  }

  #showLater() {
    const to = Math.min(this.#conversation.blocks.length, this.#to + PAGE_SIZE);
    this.#keepPosition(() => this.#show(Math.max(this.#from, to - MAX_BLOCKS), to));
  }

  /** Keeps the first visible block at its place on the screen. */
  #keepPosition(change) {
    const anchor = this.#rendered.find(({ node }) => node.getBoundingClientRect().bottom > 0)?.node;
    const before = anchor?.getBoundingClientRect().top;
    change();
    this.#drawTail();
    if (anchor?.isConnected) window.scrollBy({ top: anchor.getBoundingClientRect().top - before, behavior: "instant" });
  }

  #scrollToEnd() {
    if (!this.isAtEnd) return;
    const page = document.scrollingElement;
    window.scrollTo({ top: page.scrollHeight, behavior: "instant" });
    this.#lastTop = page.scrollTop;
  }
}
