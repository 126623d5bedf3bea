// A tool call in the transcript. Calls of the tools of the sandbox have cards of their own: a terminal, a diff, or one line.

import { el } from "../dom.js";
import { formatBytes } from "../format.js";
import { icon } from "../icons.js";
import { diffView } from "../skills/file_diff.js";
import { countChanges, parseDiff } from "../skills/unified_diff.js";
import { formatDateTime } from "../time_format.js";
import { visibleLines, visibleName, visibleText } from "../visible_text.js";
import { bashOutcome } from "./bash_result.js";
import { longText } from "./long_text.js";
import { terminal, TerminalView } from "./terminal_view.js";
import { timestamp } from "./timestamp.js";

const MAX_BRIEF = 160;
const STATES = {
  running: "Running…",
  waiting: "Waiting",
  allowed: "Allowed, waiting for other requests",
  answered: "Answered, waiting for other requests",
  denied: "Denied",
  expired: "Expired",
  done: "",
  unfinished: "No result",
};
/** The argument that the summary of a card shows. */
const BRIEF = { bash: "command", read_file: "path", write_file: "path", edit_file: "path", list_files: "path", search_files: "pattern" };
const BODIES = { bash: bashBody, edit_file: editBody, write_file: editBody };

/** The terminal of a call that is running, with what it has shown: `{view, output, generation, count}`. */
const live = new WeakMap();

/** `actions.viewPath(path)` shows a file of the session. */
export function toolCard(block, { viewPath, notVisible }) {
  const state = block.state === "waiting" ? block.waiting : STATES[block.state];
  const body = BODIES[block.name]?.(block, viewPath) ?? null;
  return el(
    "details",
    { class: `block tool ${block.state} ${block.leftOut ? "left-out" : ""}`, open: body?.isOpen ?? false },
    el(
      "summary",
      {},
      el("code", {}, visibleName(block.name)),
      brief(block),
      body?.badge,
      state && el("span", { class: "muted" }, ` ${state}`),
      block.leftOut && el("span", { class: "left-out-note" }, notVisible(block)),
      timestamp(block.at),
    ),
    body === null ? [argumentsOf(block), starts(block), result(block)] : [body.nodes, raw(block)],
  );
}

/** Shows the output that has come since the card was rendered. */
export function updateOutput(block) {
  const shown = live.get(block);
  const { output } = block;
  if (shown === undefined || output === null) return;
  if (shown.output === output && shown.generation === output.generation) {
    if (shown.count < output.pieces.length) shown.view.write(output.pieces.slice(shown.count).join(""));
    shown.count = output.pieces.length;
  } else {
    showLive(block, shown.view.node);
  }
}

/** A new terminal with all output so far. Replaces the node of the old one. */
function showLive(block, old = null) {
  const { output } = block;
  const view = new TerminalView(commandOf(block));
  live.set(block, { view, output, generation: output.generation, count: output.pieces.length });
  view.write(output.pieces.join(""));
  old?.replaceWith(view.node);
  return view.node;
}

function commandOf(block) {
  const { command } = block.arguments;
  return typeof command === "string" ? command : "";
}

function bashBody(block) {
  if (typeof block.arguments.command !== "string") return null;
  if (block.result === null) return { nodes: block.output === null ? null : showLive(block), isOpen: true };
  const { output, badges } = bashOutcome(block.result);
  return { nodes: terminal(commandOf(block), output), badge: badges.map(tag), isOpen: true };
}

function tag({ text, tone }) {
  return el("span", { class: `tag ${tone}` }, text);
}

function editBody(block, viewPath) {
  const { path } = block.arguments;
  if (typeof path !== "string" || block.result === null) return null;
  const hunks = parseDiff(block.result);
  const text = hunks.length === 0 ? block.result : beforeDiff(block.result);
  const { added, removed } = countChanges(hunks);
  const badge = hunks.length > 0 && el("span", { class: "counts" }, el("span", { class: "plus" }, `+${added}`), " ", el("span", { class: "minus" }, `−${removed}`));
  const nodes = [
    el("p", { class: "tool-line" }, text.trim() !== "" && el("span", {}, visibleLines(text.trim())), " ", viewPath && el("button", { type: "button", class: "small", on: { click: () => viewPath(path) } }, "Open file")),
    hunks.length > 0 && el("div", { class: "tool-diff" }, diffView(hunks, `Changes of ${visibleText(path)}`)),
  ];
  return { nodes, badge, isOpen: hunks.length > 0 };
}

/** The lines of a result before its diff. */
function beforeDiff(text) {
  return text.slice(0, text.search(/^(?:--- |@@ )/m));
}

function brief(block) {
  const value = block.arguments[BRIEF[block.name]];
  if (typeof value !== "string" || value === "") return null;
  const [line] = value.split("\n", 1);
  const text = line.length < value.length || line.length > MAX_BRIEF ? `${line.slice(0, MAX_BRIEF)} …` : line;
  return el("bdi", { class: `brief mono ${block.name}` }, visibleText(text));
}

/** The details of a call that its card does not show. */
function raw(block) {
  return el("details", { class: "raw" }, el("summary", {}, "Details"), argumentsOf(block), starts(block), result(block));
}

function argumentsOf(block) {
  if (Object.keys(block.arguments).length === 0) return el("p", { class: "muted" }, "No arguments");
  return [el("h3", {}, "Arguments"), longText(JSON.stringify(block.arguments, null, 2), pre)];
}

/** A tool with effects records each start. */
function starts({ started }) {
  if (started.length === 0) return null;
  const start = ({ at, attempt, key }) => el("li", {}, `${formatDateTime(at)}, attempt ${attempt}, key `, el("code", {}, key));
  return [el("h3", {}, "Started"), el("ul", { class: "starts" }, started.map(start))];
}

function result(block) {
  return block.result !== null && [el("h3", {}, "Result"), longText(block.result, pre), images(block)];
}

/** The images themselves are for the model. */
function images({ images: all = [] }) {
  if (all.length === 0) return null;
  return el("ul", { class: "tool-images" }, all.map(({ media_type: type, bytes }) => el("li", {}, icon("file"), ` ${visibleText(type)}, ${formatBytes(bytes)}`)));
}

function pre(text) {
  return el("pre", { tabindex: "0" }, visibleLines(text));
}
