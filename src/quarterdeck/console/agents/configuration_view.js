// The content of a version of an agent, to read.

import { limitText } from "../configuration/limit_fields.js";
import { isSet, LABELS } from "../configuration/fields.js";
import { sandboxName } from "../configuration/sandbox_field.js";
import { el, fill } from "../dom.js";
import { prettyJson } from "../inbox/labels.js";
import { objectNames } from "../names.js";
import { longText } from "../session/long_text.js";
import { settingRows } from "../session/run_details.js";
import { visibleLines, visibleName } from "../visible_text.js";
import { modelName } from "./versions.js";

/** `names`: see `configurationNames`. */
export function configurationView(version, names) {
  const { settings, skills, mcp_servers: servers, tool_policy: policy, limits, sandbox } = version;
  const none = el("span", { class: "muted" }, "None");
  const rows = [
    ["Model", modelName(version)],
    ...(version.fallback_models.length === 0 ? [] : [["Fallbacks", version.fallback_models.map((name) => el("div", {}, name))]]),
    ...settingRows(settings),
    ["Sandbox", sandboxName(sandbox)],
    ["Skills", skills.length === 0 ? none.cloneNode(true) : skills.map((one) => skillLink(one, names))],
    ["MCP servers", servers.length === 0 ? none.cloneNode(true) : servers.map((id) => serverLink(id, names))],
    ["Tool policy", Object.keys(policy).length === 0 ? none.cloneNode(true) : policyTags(policy)],
    ["Limit per run", limitText(limits.run) ?? "No limit"],
    ["Session limit", limitText(limits.session) ?? "No limit"],
  ];
  return [
    el("dl", { class: "facts card" }, rows.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
    el("h2", { class: "above-table" }, "Instructions"),
    version.instructions === null ? el("p", { class: "muted" }, "None") : el("div", { class: "card" }, longText(version.instructions, (text) => el("p", { class: "preformatted" }, visibleLines(text)))),
    ["client_tools", "output_schema"].filter((name) => isSet(name, version[name])).map((name) => jsonSection(LABELS[name], version[name])),
  ];
}

/** Loads names of skills and servers once for a page. */
export function configurationNames(signal) {
  const name = (found) => visibleName(found.name);
  return { skill: objectNames((id) => `/skills/${id}`, name, signal), server: objectNames((id) => `/mcp-servers/${id}`, name, signal) };
}

export function skillLink({ skill_id: id, version }, names) {
  return el("div", {}, named(`#/skills/${id}`, id, names.skill), version === null ? " (default version)" : ` v${version}`);
}

export function serverLink(id, names) {
  return el("div", {}, named(`#/mcp-servers/${id}`, id, names.server));
}

function named(href, id, names) {
  const link = el("a", { href }, id);
  names(id, (name) => fill(link, name));
  return link;
}

export function policyTags(policy) {
  const tones = { allow: "good", ask: "warn", deny: "bad" };
  return Object.entries(policy).map(([name, rule]) => el("div", {}, el("code", {}, visibleName(name)), " ", el("span", { class: `tag ${tones[rule] ?? ""}` }, rule)));
}

function jsonSection(title, value) {
  return [el("h2", { class: "above-table" }, title), longText(prettyJson(value), (text) => el("pre", { tabindex: "0", class: "wrapped" }, visibleLines(text)))];
}
