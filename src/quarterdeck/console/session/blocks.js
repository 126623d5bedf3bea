// Renders the blocks of a conversation.

import { el } from "../dom.js";
import { formatDuration } from "../time_format.js";
import { visibleName } from "../visible_text.js";
import { longText, MAX_CHARACTERS } from "./long_text.js";
import { markdown } from "./markdown.js";

const RUN_ENDS = { succeeded: ["good", "✓"], failed: ["bad", "✕"], cancelled: ["warn", "■"] };
const TOOL_STATES = { running: "Running…", done: "", unfinished: "No result" };

const RENDER = {
  input: (block) => input(block.text, block.note, block.state),
  answer: (block) => answer(longText(block.text, markdown), block.isPartial && "Stopped; partial text not saved"),
  tool,
  note: (block) => el("p", { class: "block note" }, block.text),
  end,
};

export function renderBlock(block) {
  return RENDER[block.kind](block);
}

/** Replaces a rendered block. Keeps the open state and the focus. */
export function updateBlock(node, block) {
  const fresh = renderBlock(block);
  const hadFocus = node.contains(document.activeElement);
  fresh.open = node.open;
  node.replaceWith(fresh);
  if (hadFocus) fresh.querySelector("summary")?.focus({ preventScroll: true });
  return fresh;
}

export function pendingInput({ text, note, isSending }) {
  return input(text, note, isSending ? "sending" : "accepted");
}

/** The answer while it is written. Of a long answer only the end is shown. */
export function streamingAnswer(text) {
  if (text.length <= MAX_CHARACTERS) return answer(markdown(text), false);
  return answer(el("p", {}, `… ${text.slice(-MAX_CHARACTERS)}`), false);
}

function input(text, note, state) {
  const content = longText(text, (part) => el("p", { class: "preformatted" }, part));
  return el(
    "article",
    { class: `block input ${state}`, "aria-label": "Input" },
    el("div", { class: "bubble" }, content),
    el("p", { class: "stage" }, note),
  );
}

function answer(content, note) {
  return el(
    "article",
    { class: "block answer", "aria-label": "Answer" },
    el("div", { class: "prose" }, content),
    note && el("p", { class: "stage" }, note),
  );
}

function tool(block) {
  const callArguments = Object.keys(block.arguments).length > 0 ? JSON.stringify(block.arguments, null, 2) : null;
  const state = TOOL_STATES[block.state];
  return el(
    "details",
    { class: `block tool ${block.state}` },
    el("summary", {}, el("code", {}, visibleName(block.name)), state && el("span", { class: "muted" }, ` ${state}`)),
    callArguments === null ? el("p", { class: "muted" }, "No arguments") : [el("h3", {}, "Arguments"), longText(callArguments, pre)],
    block.result !== null && [el("h3", {}, "Result"), longText(block.result, pre)],
  );
}

function pre(text) {
  return el("pre", { tabindex: "0" }, text);
}

function end(block) {
  const [tone, sign] = RUN_ENDS[block.state];
  return el(
    "p",
    { class: `block end ${tone}` },
    el("span", { "aria-hidden": "true" }, `${sign} `),
    block.text,
    block.durationMs !== null && el("span", { class: "muted" }, ` ${formatDuration(block.durationMs)}`),
  );
}
