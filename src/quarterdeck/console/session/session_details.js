// Model, tokens, skills and instructions of a session.

import { get } from "../api.js";
import { copyButton } from "../clipboard.js";
import { tokenSessionId } from "../credential.js";
import { el, fill } from "../dom.js";
import { capitalize } from "../format.js";
import { relativeTime } from "../time_format.js";
import { userName } from "../users.js";
import { visibleName } from "../visible_text.js";
import { formatTokens } from "./token_usage.js";

/** `setUsage(usage)` updates the tokens. */
export function sessionDetails(session, signal) {
  const tokens = el("dd", {});
  const setUsage = (usage) => fill(tokens, formatTokens(usage) ?? "None yet");
  setUsage(session.usage);
  const node = el(
    "dl",
    { class: "facts small-text" },
    row("Model", session.model ?? `Default (${session.effective_model})`),
    settings(session.settings).map(([name, value]) => row(name, value)),
    [el("dt", {}, "Tokens"), tokens],
    row("Skills", session.skills.length === 0 ? "None" : session.skills.map((one) => skill(one, signal))),
    row("Created", relativeTime(session.created_at), ` by ${userName(session.created_by)}`),
    session.forked_from && row("Forked from", originLink(session.forked_from.session_id, signal)),
    session.instructions && row("Instructions", instructions(session.instructions)),
    row("ID", el("code", {}, session.id), " ", copyButton(session.id, "session ID")),
  );
  return { node, setUsage };
}

function row(name, ...value) {
  return [el("dt", {}, name), el("dd", {}, value)];
}

/** Only the settings that are not the model's own. */
function settings({ temperature, max_output_tokens: maxTokens, reasoning_effort: effort }) {
  const all = [
    ["Temperature", temperature],
    ["Max output tokens", maxTokens?.toLocaleString("en") ?? null],
    ["Reasoning effort", effort && capitalize(effort)],
  ];
  return all.filter(([, value]) => value !== null);
}

/** A session contains only the ids of its skills, and a session token is not allowed to read their names. */
function skill({ skill_id: id, version }, signal) {
  const pinned = version === null ? "" : ` v${version}`;
  if (tokenSessionId() !== null) return el("div", {}, el("code", {}, id), pinned);
  return el("div", {}, namedLink(`/skills/${id}`, id, (found) => found.name, signal), pinned);
}

function originLink(id, signal) {
  if (tokenSessionId() !== null) return "Another session";
  return namedLink(`/sessions/${id}`, "Another session", (found) => found.title || "Untitled session", signal);
}

/** Shows `text` until the name is loaded, and if it cannot be. */
function namedLink(path, text, name, signal) {
  const link = el("a", { href: `#${path}` }, text);
  get(path, {}, signal).then((found) => fill(link, visibleName(name(found))), () => {});
  return link;
}

function instructions(text) {
  return el("details", {}, el("summary", {}, "Show"), el("p", { class: "preformatted" }, text));
}
