// The differences between two versions of an agent.

import { configurationNames, serverLink, skillLink } from "../agents/configuration_view.js";
import { agentCrumbs } from "../agents/crumbs.js";
import { get } from "../api.js";
import { LABELS } from "../configuration/fields.js";
import { sandboxName } from "../configuration/sandbox_field.js";
import { el, fill } from "../dom.js";
import { pluralize } from "../format.js";
import { prettyJson } from "../inbox/labels.js";
import { emptyState, errorBox, loading } from "../notices.js";
import { longText } from "../session/long_text.js";
import { diffView } from "../skills/file_diff.js";
import { parseDiff } from "../skills/unified_diff.js";
import { comparedVersions, compareForm } from "../versions.js";
import { visibleLines, visibleName } from "../visible_text.js";

/** Lists of ids: names are shown instead. */
const LINKS = { skills: skillLink, mcp_servers: serverLink };

export async function show(view, { id }) {
  const path = `/agents/${encodeURIComponent(id)}`;
  const agent = await get(path, {}, view.signal);
  if (view.signal.aborted) return;
  const hasDiff = agent.latest_version > 1;
  const { from, to } = comparedVersions(view.query, agent);
  const names = configurationNames(view.signal);
  const result = el("div", {});
  fill(
    view.main,
    agentCrumbs(agent),
    view.title(hasDiff ? `${visibleName(agent.name)}: version ${from} to ${to}` : visibleName(agent.name)),
    hasDiff && compareForm(path, agent, from, to),
    result,
  );
  if (hasDiff) await load();
  else fill(result, emptyState("Nothing to compare", el("p", {}, "This agent has fewer than two versions.")));

  async function load() {
    fill(result, loading("changes"));
    try {
      const { fields } = await get(`${path}/diff`, { base: from, head: to }, view.signal);
      fill(result, fields.length === 0 ? emptyState("No differences") : [el("p", { role: "status" }, `${pluralize(fields.length, "field")} changed`), fields.map((one) => fieldDiff(one, names))]);
    } catch (error) {
      if (!view.signal.aborted) fill(result, errorBox(error, load));
    }
  }
}

function fieldDiff({ field, before, after, diff }, names) {
  const label = LABELS[field] ?? field;
  return el(
    "details",
    { class: "file-diff", open: true },
    el("summary", {}, el("h2", {}, label)),
    listChange(field, before, after, names) ?? textChange(diff, label) ?? el("div", { class: "field-change" }, side("Before", field, before), side("After", field, after)),
  );
}

/** What was removed and added. Null if the field is not a list of ids, or only its order has changed. */
function listChange(field, before, after, names) {
  const link = LINKS[field];
  if (link === undefined) return null;
  const without = (list, others) => {
    const known = new Set(others.map((one) => JSON.stringify(one)));
    return list.filter((one) => !known.has(JSON.stringify(one)));
  };
  const sides = [["Removed", without(before, after)], ["Added", without(after, before)]].filter(([, list]) => list.length > 0);
  if (sides.length === 0) return null;
  return el("div", { class: "field-change" }, sides.map(([name, list]) => el("div", {}, el("h3", {}, name), list.map((one) => link(one, names)))));
}

function textChange(diff, label) {
  const hunks = diff === null ? [] : parseDiff(diff);
  return hunks.length === 0 ? null : diffView(hunks, `Changes of ${label}`);
}

function side(name, field, value) {
  const text = fieldText(field, value);
  return el("div", {}, el("h3", {}, name), longText(text, (part) => el("p", { class: value === null ? "muted" : "preformatted" }, visibleLines(part))));
}

function fieldText(field, value) {
  if (field === "sandbox") return sandboxName(value);
  if (value === null) return field === "model" ? "Default" : "None";
  return typeof value === "string" ? value : prettyJson(value);
}
