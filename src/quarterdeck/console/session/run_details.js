// What a run was started with and what it used.

import { usedAgentLink } from "../agents/agent_link.js";
import { el } from "../dom.js";
import { capitalize } from "../format.js";
import { visibleName } from "../visible_text.js";
import { costText, tokensText } from "../usage/usage_text.js";

/** `setup`: the data of `run.started`, null if it is unknown. `usage`: null until it is loaded. `answeredBy`: names of models. */
export function runDetails({ setup, usage, answeredBy, runId }) {
  const usesOther = answeredBy.some((name) => name !== setup?.model);
  const rows = [
    ...setupRows(setup ?? {}),
    usesOther && ["Answered by", answeredBy.map((name) => el("div", {}, name))],
    usage && ["Tokens", tokensText(usage) ?? "None"],
    usage && ["Cost", costText(usage) ?? "None"],
    ["Run ID", el("code", {}, runId)],
    setup?.trace_id && ["Trace ID", el("code", {}, setup.trace_id)],
  ];
  return el("dl", { class: "facts small-text" }, rows.filter(Boolean).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function setupRows({ agent, model, settings, skills }) {
  return [
    agent && ["Agent", usedAgentLink(agent)],
    model && ["Model", model],
    ...settingRows(settings ?? {}),
    skills && ["Skills", skills.length === 0 ? "None" : skills.map(skill)],
  ];
}

/** `[name, text]` of the settings that are not the model's own. */
export function settingRows({ temperature, max_output_tokens: maxTokens, reasoning_effort: effort }) {
  const rows = [
    ["Temperature", temperature?.toString()],
    ["Max output tokens", maxTokens?.toLocaleString("en")],
    ["Reasoning effort", effort && capitalize(effort)],
  ];
  return rows.filter(([, value]) => value !== null && value !== undefined);
}

function skill({ name, version }) {
  return el("div", {}, `${visibleName(name)} v${version}`);
}
