// Requests of runs (actions in the API) as text: kinds, states, answers and who gave them.

import { el } from "../dom.js";
import { capitalize } from "../format.js";
import { emailOf } from "../people/emails.js";
import { formatCost } from "../usage/usage_text.js";
import { visibleName, visibleText } from "../visible_text.js";

export const KINDS = {
  approval: { name: "Approval", title: "Approval required", waiting: "Waiting for approval" },
  tool_result: { name: "Tool result", title: "Tool result required", waiting: "Waiting for a tool result" },
  unknown_outcome: { name: "Unknown outcome", title: "Outcome unknown", waiting: "Waiting for you" },
  budget: { name: "Limit", title: "Limit reached", waiting: "Limit reached" },
};
const STATES = { expired: "Expired without an answer", cancelled: "Cancelled with its run" };
const SCOPES = { run: "this run", session: "this session", day: "the workspace today" };
const CREDENTIALS = { api_key: "API key", device: "Device", session_token: "Session token" };
const MAX_SHORT = 120;

/** Unknown kinds, from a newer server, are shown by their name. */
export function kindOf({ kind }) {
  return KINDS[kind] ?? { name: kind, title: kind, waiting: "Waiting" };
}

/** The arguments of a call in one line, or the limit that was reached. */
export function shortArguments({ arguments: callArguments, reached }) {
  if (reached) return `${limitUse(reached)} for ${SCOPES[reached.scope]}`;
  if (callArguments === null || Object.keys(callArguments).length === 0) return "";
  const text = visibleText(JSON.stringify(callArguments));
  return text.length > MAX_SHORT ? `${text.slice(0, MAX_SHORT)}…` : text;
}

/** `$2.53 of $2.50` or `1,200 of 1,000 tokens`. */
export function limitUse({ limit, used, maximum }) {
  return limit === "max_cost_usd" ? `${formatCost(used)} of ${formatCost(maximum)}` : `${used.toLocaleString("en")} of ${maximum.toLocaleString("en")} tokens`;
}

export function scopeName({ scope }) {
  return SCOPES[scope] ?? scope;
}

/** What a higher limit applies to. */
export function raisedScope(reached) {
  return reached.scope === "day" ? "the workspace, every day" : scopeName(reached);
}

/** The answer to a request in a few words, without its texts. */
export function answerText(action) {
  if (action.state !== "resolved") return STATES[action.state] ?? action.state;
  const { decision, remember, arguments: changed, is_error: isError } = action.resolution;
  if (action.kind === "tool_result") return isError ? "Error returned" : "Result returned";
  if (decision === "allow") return ["Allowed", remember === "session" && "for this session", changed && "with changed arguments"].filter(Boolean).join(" ");
  if (decision === "raise" && action.resolved_by === null) return "Released: the limit was raised or its day is over";
  if (decision === "raise") return `Limit raised to ${raisedTo(action)}`;
  const answers = { deny: "Denied", done: "Marked as done", failed: "Marked as failed", retry: "Run again", stop: "Run stopped" };
  return answers[decision] ?? "Answered";
}

/** The answer in one or two words. */
export function shortAnswer({ state, resolution, resolved_by: caller }) {
  if (state !== "resolved") return capitalize(state);
  if (resolution.decision === "raise" && caller === null) return "Released";
  const answers = { allow: "Allowed", deny: "Denied", done: "Done", failed: "Failed", retry: "Run again", raise: "Limit raised", stop: "Stopped" };
  return answers[resolution.decision] ?? "Answered";
}

function raisedTo({ resolution: { max_cost_usd: cost, max_tokens: tokens } }) {
  const values = [cost !== undefined && formatCost(cost), tokens !== undefined && `${tokens.toLocaleString("en")} tokens`];
  return values.filter(Boolean).join(" and ");
}

/** The texts of an answer: `[heading, text]`. */
export function answerDetails({ kind, resolution }) {
  if (resolution === null) return [];
  const { message, arguments: changed, result } = resolution;
  return [
    message && ["Message", message],
    changed && ["Arguments used", prettyJson(changed)],
    result !== undefined && [kind === "tool_result" && resolution.is_error ? "Error" : "Result", typeof result === "string" ? result : prettyJson(result)],
  ].filter(Boolean);
}

export function prettyJson(value) {
  return JSON.stringify(value, null, 2);
}

/** The name with the credential as a tooltip. A person without a name is shown by the email address. */
export function callerLabel(caller, className = null) {
  const node = el("span", { class: className, title: callerDetails(caller) }, callerName(caller));
  if (caller.type === "device" && caller.display_name === null) {
    emailOf(caller.user_id).then((email) => { if (email !== null) node.textContent = visibleName(email); });
  }
  return node;
}

/** The person behind a key or a device; a session token is used by others than its creator, so it is shown by its label. */
export function callerName({ type, label, display_name: name }) {
  if (type === "session_token") return label ? visibleName(label) : "Session token";
  return visibleName(name ?? label ?? "API key");
}

/** The credential, for a tooltip. */
function callerDetails({ type, label, display_name: name }) {
  const kind = CREDENTIALS[type] ?? type;
  const credential = label ? `${kind} “${visibleName(label)}”` : kind;
  return name ? `${credential} of ${visibleName(name)}` : credential;
}
