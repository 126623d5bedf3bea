// Renders Markdown as DOM elements. HTML in the text stays text, and everything passes DOMPurify. Large or deeply nested
// parts are shown as plain text, so that no text can block the page.

import { copyButton } from "../clipboard.js";
import { el } from "../dom.js";
import DOMPurify from "../vendor/dompurify.js";
import { visibleText } from "../visible_text.js";
import { highlight, languageName, parseBlocks } from "./markdown_html.js";

const MAX_CHARACTERS = 100_000;
const MAX_ELEMENTS = 4000;
// Browsers lay out nested elements recursively.
const MAX_DEPTH = 64;
const SHORT_CELL = 16;
// Code is highlighted in parts, until this time is used up.
const HIGHLIGHT_CHARACTERS = 20_000;
const HIGHLIGHT_MS = 300;
/** @type {any} */
const purifier = DOMPurify;
purifier.setConfig({
  ALLOWED_TAGS: [
    ...["p", "br", "hr", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "code", "span"],
    ...["strong", "em", "s", "a", "table", "thead", "tbody", "tr", "th", "td"],
  ],
  ALLOWED_ATTR: ["class", "href", "start"],
  // All values must match, except those of `class` and `start`.
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ADD_URI_SAFE_ATTR: ["start"],
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
});

export function markdown(text) {
  const view = new MarkdownView();
  view.update(text);
  return view.node;
}

/** Nodes of the code with its colours, as far as the language is known and the time suffices. */
export function highlighted(code, language) {
  const until = performance.now() + HIGHLIGHT_MS;
  const nodes = [];
  for (let start = 0, end; start < code.length; start = end) {
    end = start + HIGHLIGHT_CHARACTERS >= code.length ? code.length : code.lastIndexOf("\n", start + HIGHLIGHT_CHARACTERS) + 1;
    if (end <= start || performance.now() > until) return [...nodes, code.slice(start)];
    const part = code.slice(start, end);
    const html = highlight(part, language);
    nodes.push(html === "" ? part : purifier.sanitize(html));
  }
  return nodes;
}

/** A text that grows: `update` replaces only the blocks that have changed. */
export class MarkdownView {
  node = el("div", { class: "markdown" });
  /** `{key, node}` of each block. */
  #shown = [];

  update(text) {
    const parts = splitText(text);
    while (this.#shown.length > parts.length) this.#shown.pop().node.remove();
    for (const [index, part] of parts.entries()) {
      const old = this.#shown[index];
      if (old?.key === part.key) continue;
      const node = part.render();
      if (old) old.node.replaceWith(node);
      else this.node.append(node);
      this.#shown[index] = { key: part.key, node };
    }
  }
}

/** Returns `{key, render()}` for each block. Blocks with the same key look the same. */
function splitText(text) {
  const clean = text.replace(/\r\n?/g, "\n");
  const end = clean.length <= MAX_CHARACTERS ? clean.length : splitIndex(clean);
  const marked = clean.slice(0, end);
  const parts = [];
  let left = MAX_ELEMENTS;
  let rest = clean.slice(end);
  for (const block of parseBlocks(marked)) {
    left -= block.elements + 1;
    if (left < 0 || block.depth > MAX_DEPTH) {
      rest = marked.split("\n").slice(block.line).join("\n") + rest;
      break;
    }
    parts.push({ key: block.key, render: () => sanitize(block.html()) });
  }
  if (rest !== "") parts.push({ key: `text:${rest}`, render: () => el("p", { class: "preformatted" }, rest) });
  return parts;
}

/** The end of the last line before the limit, or the limit itself in a very long line. */
function splitIndex(text) {
  return text.lastIndexOf("\n", MAX_CHARACTERS) + 1 || MAX_CHARACTERS;
}

function sanitize(html) {
  const fragment = purifier.sanitize(html);
  for (const link of fragment.querySelectorAll("a")) Object.assign(link, { rel: "noopener noreferrer", target: "_blank" });
  for (const code of fragment.querySelectorAll("pre > code")) decorateCode(code);
  for (const table of fragment.querySelectorAll("table")) {
    const scroller = el("div", { class: "table-scroll", tabindex: "0" });
    table.replaceWith(scroller);
    scroller.append(table);
  }
  // Dates and numbers stay in one line.
  for (const cell of fragment.querySelectorAll("td")) cell.classList.toggle("short", cell.textContent.length <= SHORT_CELL);
  for (const item of fragment.querySelectorAll("li")) showTask(item);
  return el("div", { class: "md-block" }, fragment);
}

/** Replaces the `[x]` or `[ ]` of a task by a checkbox. */
function showTask(item) {
  const first = (item.firstElementChild?.localName === "p" && item.firstChild.textContent.trim() === "" ? item.firstElementChild : item).firstChild;
  const mark = first?.nodeType === Node.TEXT_NODE && /^\[([ x])\] /i.exec(first.data);
  if (!mark) return;
  first.data = first.data.slice(mark[0].length);
  const isDone = mark[1] !== " ";
  item.classList.add("task");
  first.before(el("input", { type: "checkbox", disabled: true, checked: isDone, "aria-label": isDone ? "Done" : "Not done" }), " ");
}

/** Adds the name of the language and a copy button. */
function decorateCode(code) {
  const pre = code.parentElement;
  const language = /(?:^| )language-(\S+)/.exec(code.className)?.[1] ?? "";
  const box = el("div", { class: "code-block" });
  pre.replaceWith(box);
  pre.tabIndex = 0;
  const label = el("span", { class: "language" }, visibleText(languageName(language)));
  box.append(el("div", { class: "code-head" }, label, copyButton(code.textContent.replace(/\n$/, ""), "code")), pre);
}
