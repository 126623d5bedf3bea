// Model, tokens, skills and instructions of a session.

import { get } from "../api.js";
import { copyButton } from "../clipboard.js";
import { tokenSessionId } from "../credential.js";
import { el, fill } from "../dom.js";
import { relativeTime } from "../time_format.js";
import { costText, tokensText } from "../usage/usage_text.js";
import { userName } from "../users.js";
import { visibleName } from "../visible_text.js";
import { LABELS } from "../configuration/fields.js";
import { limitText } from "../configuration/limit_fields.js";
import { settingRows } from "./run_details.js";
import { sandboxName } from "../configuration/sandbox_field.js";

/** `setUsage(usage)` updates tokens and cost. */
export function sessionDetails(session, signal) {
  const tokens = el("dd", {});
  const cost = el("dd", {});
  const setUsage = (usage) => {
    fill(tokens, tokensText(usage) ?? "None yet");
    fill(cost, costText(usage) ?? "None yet");
  };
  setUsage(session.usage);
  const node = el(
    "dl",
    { class: "facts small-text" },
    session.agent && row("Agent", agentLine(session.agent)),
    session.overrides.length > 0 && row("Overridden", session.overrides.map((name) => LABELS[name] ?? name).join(", ")),
    row("Model", session.model ?? `Default (${session.effective_model})`),
    session.fallback_models.length > 0 && row("Fallbacks", session.fallback_models.map((name) => el("div", {}, name))),
    settingRows(session.settings).map(([name, value]) => row(name, value)),
    row("Sandbox", sandboxName(session.sandbox)),
    [el("dt", {}, "Tokens"), tokens],
    [el("dt", {}, "Cost"), cost],
    limitRows(session.limits),
    policyRow(session.tool_policy),
    session.client_tools.length > 0 && row("Client tools", session.client_tools.map(({ name }) => el("div", {}, el("code", {}, name)))),
    session.mcp_servers.length > 0 && row("MCP servers", session.mcp_servers.map((id) => el("div", {}, serverLink(id, signal)))),
    row("Skills", session.skills.length === 0 ? "None" : session.skills.map((one) => skill(one, signal))),
    session.output_schema !== null && row("Output", "JSON with a schema"),
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

function limitRows({ run, session }) {
  const rows = [["Limit per run", limitText(run)], ["Session limit", limitText(session)]];
  return rows.filter(([, value]) => value !== null).map(([name, value]) => row(name, value));
}

function policyRow(policy) {
  const entries = Object.entries(policy);
  return entries.length > 0 && row("Tool policy", entries.map(([name, rule]) => el("div", {}, el("code", {}, name), ` ${rule}`)));
}

function agentLine({ agent_id: id, version, name, current_version: current }) {
  const text = visibleName(name);
  const link = tokenSessionId() === null ? el("a", { href: `#/agents/${id}` }, text) : text;
  return [link, version === null ? ` v${current}` : ` v${version} (pinned)`];
}

function serverLink(id, signal) {
  return tokenSessionId() === null ? namedLink(`/mcp-servers/${id}`, id, (found) => found.name, signal) : el("code", {}, id);
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
