// Renders the blocks of a conversation.

import { usedAgentLink } from "../agents/agent_link.js";
import { el, fill, uniqueId } from "../dom.js";
import { formatDuration } from "../time_format.js";
import { actionCard } from "../inbox/action_card.js";
import { callerLabel } from "../inbox/labels.js";
import { whoami } from "../credential.js";
import { formatCost, tokensText } from "../usage/usage_text.js";
import { visibleLines, visibleName, visibleText } from "../visible_text.js";
import { attachmentChips } from "./attachment_chips.js";
import { cutOffText, mismatchText } from "./conversation.js";
import { longText, MAX_CHARACTERS } from "./long_text.js";
import { markdown, MarkdownView } from "./markdown.js";
import { runDetails } from "./run_details.js";
import { timestamp } from "./timestamp.js";
import { toolCard } from "./tool_card.js";

const RUN_ENDS = { succeeded: ["good", "✓"], failed: ["bad", "✕"], cancelled: ["warn", "■"] };

const RENDER = {
  input,
  answer: (block) => answer(longText(block.text, isJson(block.text) ? json : markdown), block),
  tool: (block, { files }) => toolCard(block, { viewPath: (path) => files.viewPath(path), notVisible }),
  note: (block) => el("p", { class: "block note" }, block.text, timestamp(block.at)),
  quote,
  summary: contextSummary,
  action: (block, { answered }) => el("div", { class: "block" }, isCopied(block) ? copiedRequest(block.action) : actionCard(block.action, answered)),
  end,
};

/** `actions`: `edit(block)`, `withdraw(block)`, `drop(block)`, `retry(block)`; null if the user is not allowed to. `answered(action)`: a request was answered. `files`: a SessionFiles. */
export function renderBlock(block, actions) {
  return RENDER[block.kind](block, actions);
}

/** Replaces a rendered block. Keeps the open state and the focus. */
export function updateBlock(node, block, actions) {
  const fresh = renderBlock(block, actions);
  const hadFocus = node.contains(document.activeElement);
  fresh.open = node.open;
  node.replaceWith(fresh);
  if (hadFocus) fresh.querySelector("summary, button, [tabindex]")?.focus({ preventScroll: true });
  return fresh;
}

/** The answer while it is written. Of a long answer only the end is shown. */
export class StreamingAnswer {
  #view = new MarkdownView();
  #end = el("p", { class: "preformatted" });
  #content = el("div", {}, this.#view.node);
  node = answer(this.#content, { isPartial: false, mismatch: null, cutOff: null, sources: [], at: null });

  update(text) {
    this.node.hidden = text === "";
    const isLong = text.length > MAX_CHARACTERS;
    if (isLong) this.#end.textContent = `… ${text.slice(-MAX_CHARACTERS)}`;
    else this.#view.update(text);
    const shown = isLong ? this.#end : this.#view.node;
    if (shown.parentNode === null) fill(this.#content, shown);
  }
}

function input(block, { edit, withdraw, drop, files }) {
  const isUnread = block.state === "accepted";
  const isStored = block.eventId !== null;
  return el(
    "article",
    { class: `block input ${block.state} ${block.leftOut ? "left-out" : ""}`, "aria-label": "Input" },
    block.text !== "" && el("div", { class: "bubble" }, longText(block.text, (part) => el("p", { class: "preformatted" }, part))),
    block.attachments.length > 0 && attachmentChips(block.attachments, files),
    el(
      "div",
      { class: "meta" },
      block.actor && sender(block.actor),
      timestamp(block.at),
      isStored && edit && !isUnread && button("Edit", () => edit(block), "Edit in a new session"),
      block.canDrop && drop && button("Remove", () => drop(block), "Hide this message from the model"),
      isStored && isUnread && withdraw && button("Withdraw", () => withdraw(block)),
      el("p", { class: "stage" }, block.note),
      block.leftOut && el("p", { class: "left-out-note" }, notVisible(block)),
    ),
  );
}

function answer(content, { isPartial, mismatch, cutOff, sources, at }) {
  return el(
    "article",
    { class: "block answer", "aria-label": "Answer" },
    el("div", { class: "prose" }, content),
    sources.length > 0 && el("div", { class: "sources" }, "Sources", el("ol", {}, sources.map((source) => el("li", {}, sourceLink(source))))),
    isPartial && el("p", { class: "stage" }, "Stopped; partial text not saved"),
    mismatch !== null && el("p", { class: "stage mismatch" }, mismatchText(mismatch)),
    cutOff !== null && el("p", { class: "stage cut-off" }, cutOffText(cutOff)),
    timestamp(at),
  );
}

/** Only addresses of pages are links. */
function sourceLink({ title, url = null }) {
  const name = visibleText(title);
  if (url === null || !/^https?:\/\//.test(url)) return name;
  return el("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, name);
}

/** Whether an answer is an object or a list in JSON, as an output schema requires. Markdown would change it. */
function isJson(text) {
  if (!/^\s*[[{]/.test(text)) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function json(text) {
  return el("pre", { tabindex: "0", class: "wrapped" }, visibleLines(text));
}

/** The sender is always shown if it is not the user, else with the time. */
function sender(actor) {
  return callerLabel(actor, isCaller(actor) ? "at" : "sender");
}

/** Of a person, all devices count. */
function isCaller(actor) {
  const own = whoami();
  return actor.id === own?.id || (actor.type === "device" && own?.kind === "device" && actor.user_id === own.user.user_id);
}

function quote(block) {
  return el(
    "figure",
    { class: "block quote" },
    el("figcaption", {}, "Note", timestamp(block.at)),
    el("blockquote", {}, longText(block.text, (part) => el("p", { class: "preformatted" }, part))),
  );
}

/** A folded text: what the model gets instead of the turns before, or the reasoning before its answer. */
function contextSummary(block) {
  return el(
    "details",
    { class: "block context-summary" },
    el("summary", {}, block.text, timestamp(block.at)),
    longText(block.summary, (part) => el("p", { class: "preformatted" }, visibleLines(part))),
  );
}

/** An open request of the session that this one was forked from: it can be answered only there. */
function isCopied({ action, isKnown }) {
  return action.state === "open" && !isKnown;
}

function copiedRequest({ tool: name }) {
  return el("p", { class: "action answered" }, "A request", name !== null && [" for ", el("code", {}, visibleName(name))], " of the original session");
}

function notVisible({ leftOut: reason }) {
  return `Not visible to the model: ${reason}`;
}

function end(block, { retry }) {
  const [tone, sign] = RUN_ENDS[block.state];
  const canRetry = retry && block.state !== "succeeded" && block.hasInputs && block.isKnown && !block.isRetried;
  const details = el("div", { class: "run-details", id: uniqueId("run"), hidden: true }, runDetails(block));
  const facts = [
    block.durationMs !== null && formatDuration(block.durationMs),
    block.usage && tokensText(block.usage),
    block.usage?.cost_usd && formatCost(block.usage.cost_usd),
    block.isRetried && "Retried",
  ];
  return el(
    "div",
    { class: `block end ${tone}` },
    el("p", {}, el("span", { "aria-hidden": "true" }, `${sign} `), block.text),
    el("span", { class: "muted" }, facts.filter(Boolean).join(" · "), block.setup?.agent && [facts.some(Boolean) && " · ", usedAgentLink(block.setup.agent)]),
    canRetry && button("Retry", () => retry(block), "Run the same messages again"),
    detailsButton(details),
    timestamp(block.at),
    details,
  );
}

function detailsButton(details) {
  const toggle = () => {
    details.hidden = !details.hidden;
    node.setAttribute("aria-expanded", String(!details.hidden));
    // The composer lies over the end of the page.
    if (!details.hidden) details.scrollIntoView({ block: "nearest", behavior: "instant" });
  };
  const node = el("button", { type: "button", class: "small", "aria-expanded": "false", "aria-controls": details.id, on: { click: toggle } }, "Details");
  return node;
}

function button(label, act, title = null) {
  const onClick = (event) => act(event.currentTarget);
  return el("button", { type: "button", class: `small ${label.toLowerCase()}`, title, on: { click: onClick } }, label);
}
