// One block of a conversation as it is seen.

import { el } from "../dom.js";
import { span } from "../times.js";
import { named } from "../visible.js";
import { SENDING } from "./conversation.js";
import { longText, SHOWN_CHARACTERS } from "./long_text.js";
import { markdown } from "./markdown.js";

const ENDS = { succeeded: ["good", "✓"], failed: ["bad", "✕"], cancelled: ["warn", "■"] };
const TOOL_STATES = { working: "at work…", done: "", open: "no result" };

const DRAW = {
  input: (block) => input(block.text, block.note, block.state),
  answer: (block) => answer(longText(block.text, markdown), block.cut && "cut off here, and not kept"),
  tool,
  note: (block) => el("p", { class: "block note" }, block.text),
  end,
};

export function drawn(block) {
  return DRAW[block.kind](block);
}

/** In place of how it was drawn before; what was open stays open, and what had the focus keeps it. */
export function redrawn(node, block) {
  const fresh = drawn(block);
  const hadFocus = node.contains(document.activeElement);
  fresh.open = node.open;
  node.replaceWith(fresh);
  if (hadFocus) fresh.querySelector("summary")?.focus({ preventScroll: true });
  return fresh;
}

export function waitingInput(one) {
  const isSending = one.stage === SENDING;
  const note = isSending ? "sending…" : `accepted · ${one.stage} · not taken up yet`;
  return input(one.text, one.elsewhere ? `sent from elsewhere · ${note}` : note, isSending ? "sending" : "accepted");
}

/** The answer that is being written. Of a long one the end is what is new. */
export function streamingAnswer(text) {
  if (text.length <= SHOWN_CHARACTERS) return answer(markdown(text), false);
  return answer(el("p", {}, `… ${text.slice(-SHOWN_CHARACTERS)}`), false);
}

function input(text, note, state) {
  const shown = longText(text, (part) => el("p", { class: "as-typed" }, part));
  return el(
    "article",
    { class: `block input ${state}`, "aria-label": "Input" },
    el("div", { class: "bubble" }, shown),
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
  const given = Object.keys(block.given).length > 0 ? JSON.stringify(block.given, null, 2) : null;
  const state = TOOL_STATES[block.state];
  return el(
    "details",
    { class: `block tool ${block.state}` },
    el("summary", {}, el("code", {}, named(block.name)), state && el("span", { class: "quiet" }, ` ${state}`)),
    given === null ? el("p", { class: "quiet" }, "No arguments.") : [el("h3", {}, "Arguments"), longText(given, pre)],
    block.result !== null && [el("h3", {}, "Result"), longText(block.result, pre)],
  );
}

function pre(text) {
  return el("pre", { tabindex: "0" }, text);
}

function end(block) {
  const [tone, sign] = ENDS[block.state];
  return el(
    "p",
    { class: `block end ${tone}` },
    el("span", { "aria-hidden": "true" }, `${sign} `),
    block.text,
    block.took !== null && el("span", { class: "quiet" }, ` ${span(block.took)}`),
  );
}
