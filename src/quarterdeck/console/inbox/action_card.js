// A request of a run with the form that answers it, or with its answer.

import { ApiError, get, post } from "../api.js";
import { el, fill, uniqueId } from "../dom.js";
import { errorBox, notice } from "../notices.js";
import { formatDateTime, relativeTime } from "../time_format.js";
import { visibleLines, visibleName, visibleText } from "../visible_text.js";
import { longText } from "../session/long_text.js";
import { answerForm } from "./answer_forms.js";
import { jsonField } from "./json_field.js";
import { canAnswer, reasonNotToRaise } from "./permission.js";
import { answerDetails, answerText, callerLabel, callerName, kindOf, limitUse, scopeName } from "./labels.js";

const GOOD = ["good", "✓"];
const BAD = ["bad", "✕"];
const SIGNS = { allow: GOOD, done: GOOD, raise: GOOD, retry: ["good", "↻"], deny: BAD, failed: BAD, stop: ["bad", "■"] };

/** Selects the part of a card that takes the focus. */
export const FOCUS = "summary, [tabindex]";

/** `onAnswer(action)` is called with the answered request, also if somebody else was faster. */
export function actionCard(action, onAnswer) {
  return action.state === "open" ? openCard(action, onAnswer) : answeredCard(action);
}

function openCard(action, onAnswer) {
  const headingId = uniqueId("action");
  const errorContainer = el("div", {});
  let isSending = false;

  /** `body()` builds the answer, as an object or encoded, and throws if a field is invalid. The buttons stay enabled, so that they keep the focus. */
  async function send(body) {
    if (isSending) return;
    isSending = true;
    node.setAttribute("aria-busy", "true");
    fill(errorContainer);
    try {
      onAnswer(await post(`/actions/${action.id}/resolve`, body()));
    } catch (error) {
      await failed(error);
    } finally {
      isSending = false;
      node.removeAttribute("aria-busy");
    }
  }

  async function failed(error) {
    if (error instanceof ApiError && error.status === 409) {
      const current = await get(`/actions/${action.id}`).catch(() => null);
      if (current !== null && current.state !== "open") {
        notice(`Already closed: ${answerText(current)}${current.resolved_by ? ` by ${callerName(current.resolved_by)}` : ""}.`);
        onAnswer(current);
        return;
      }
    }
    fill(errorContainer, errorBox(error));
  }

  const node = el(
    "section",
    { class: "action open", "aria-labelledby": headingId, tabindex: "-1" },
    el(
      "div",
      { class: "action-head" },
      el("h3", { id: headingId }, title(action)),
      el("span", { class: "muted small-text" }, "Expires ", relativeTime(action.expires_at)),
    ),
    reason(action),
    canAnswer() ? answerForm(action, send) : readOnly(action),
    errorContainer,
  );
  return node;
}

function title(action) {
  const { title: text } = kindOf(action);
  return action.tool === null ? text : [text, ": ", el("code", {}, visibleName(action.tool))];
}

/** One sentence. The title of an approval says it all, except for tools of MCP servers. */
function reason({ kind, tool, reason: text, reached }) {
  const sentences = {
    approval: text === `The model wants to call ${tool}.` ? null : visibleText(text),
    tool_result: "The program that uses this session normally answers this.",
    unknown_outcome: "A worker stopped during this call, so it is unknown whether the call took effect.",
    budget: reached && `The limit for ${scopeName(reached)} is reached.${canRaise(reached) ? " The run continues when you raise it." : ""}`,
  };
  const sentence = kind in sentences ? sentences[kind] : text;
  return sentence && el("p", { class: "action-reason" }, sentence);
}

function canRaise(reached) {
  return canAnswer() && reasonNotToRaise(reached) === null;
}

function readOnly({ arguments: callArguments, reached }) {
  return [
    callArguments && jsonField("Arguments", callArguments).node,
    reached && el("p", {}, limitUse(reached), " used"),
    el("p", { class: "hint" }, "Answering requires the permission action.resolve, or a session token that may answer requests."),
  ];
}

function toneAndSign({ kind, state, resolution }) {
  if (state !== "resolved") return ["", "–"];
  if (kind === "tool_result") return resolution.is_error ? BAD : GOOD;
  return SIGNS[resolution.decision] ?? ["", "–"];
}

function answeredCard(action) {
  const [tone, sign] = toneAndSign(action);
  const details = answerDetails(action);
  const by = action.resolved_by && [" by ", callerLabel(action.resolved_by)];
  const line = [
    el("span", { class: `action-sign ${tone}`, "aria-hidden": "true" }, sign),
    el("span", {}, el("strong", {}, answerText(action)), by, action.tool !== null && [" · ", el("code", {}, visibleName(action.tool))]),
    action.resolved_at && el("span", { class: "action-time", title: formatDateTime(action.resolved_at) }, relativeTime(action.resolved_at)),
  ];
  if (details.length === 0) return el("p", { class: "action answered", tabindex: "-1", role: "group", "aria-label": kindOf(action).name }, line);
  const pre = (text) => el("pre", { tabindex: "0" }, visibleLines(text));
  return el(
    "details",
    { class: "action answered" },
    el("summary", {}, line),
    details.map(([name, text]) => [el("h4", {}, name), longText(text, pre)]),
  );
}
