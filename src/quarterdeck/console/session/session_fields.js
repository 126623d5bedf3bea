// The form fields of a session, for the dialogs that create and edit one.

import { get, listAll } from "../api.js";
import { field } from "../dialogs.js";
import { el, fill, uniqueId } from "../dom.js";
import { errorBox, loading } from "../notices.js";
import { visibleName } from "../visible_text.js";
import { limitFields, limitValues } from "./limit_fields.js";
import { policyFields, policyValue } from "./policy_fields.js";
import { workspaceField } from "./workspace_field.js";

const EFFORTS = [["", "Default"], ["low", "Low"], ["medium", "Medium"], ["high", "High"]];

/** Fields with the values of a session, or empty ones if it is null. */
export function sessionFields(session, signal) {
  const title = el("input", { name: "title", maxlength: 200, value: session?.title ?? "", autofocus: true });
  const instructions = el("textarea", { name: "instructions", rows: 3, value: session?.instructions ?? "" });
  const skills = el("div", { class: "skill-choices" }, loading("skills"));
  listSkills(skills, session?.skills ?? [], signal);
  return [
    field("Title", title),
    modelField(session, signal),
    field("Instructions", instructions, "Instructions that the agent always follows."),
    workspaceField(session),
    el("fieldset", {}, el("legend", {}, "Skills"), skills),
    settingsFields(session?.settings ?? {}),
    toolsAndLimits(session),
  ];
}

/** The values of the form. `skills` is missing while the list of skills is not loaded. */
export function formValues(data) {
  const number = (name) => (data.get(name) === "" ? null : Number(data.get(name)));
  const pinned = (id) => data.get(`version ${id}`);
  const skills = data.getAll("skill").map((id) => ({ skill_id: id, version: pinned(id) ? Number(pinned(id)) : null }));
  return {
    title: data.get("title").trim() || null,
    model: data.get("model").trim() || null,
    instructions: data.get("instructions").trim() || null,
    ...(data.get("workspace") && { workspace: data.get("workspace") }),
    ...(data.has("skills loaded") && { skills }),
    settings: {
      temperature: number("temperature"),
      max_output_tokens: number("max_output_tokens"),
      reasoning_effort: data.get("reasoning_effort") || null,
    },
    tool_policy: policyValue(data),
    limits: { run: limitValues(data, "run"), session: limitValues(data, "session") },
  };
}

const NO_LIMIT = { max_cost_usd: null, max_tokens: null };

/** Closed at first unless the session uses it. */
function toolsAndLimits(session) {
  const { tool_policy: policy = {}, client_tools: tools = [], limits = { run: NO_LIMIT, session: NO_LIMIT } } = session ?? {};
  const isUsed = Object.keys(policy).length > 0 || tools.length > 0 || JSON.stringify(limits).match(/\d/) !== null;
  const details = el(
    "details",
    { class: "more-fields", open: isUsed },
    el("summary", {}, "Tools and limits"),
    policyFields(policy, tools.map(({ name }) => name)),
    tools.length > 0 && clientTools(tools),
    limitFields("run", "Limit for each run", limits.run),
    limitFields("session", "Limit for the session", limits.session, "A run that reaches a limit waits until you raise it or stop the run."),
  );
  // A browser cannot show the message of an invalid field while the details are closed.
  details.addEventListener("invalid", () => { details.open = true; }, { capture: true });
  return details;
}

function clientTools(tools) {
  return el(
    "fieldset",
    {},
    el("legend", {}, "Client tools"),
    el("ul", { class: "client-tools" }, tools.map(({ name, description }) => el("li", {}, el("code", {}, visibleName(name)), " ", el("span", { class: "muted" }, description)))),
    el("p", { class: "hint" }, "Carried out by the program that uses this session. Set with the API."),
  );
}

/** Suggests the configured models; other names can be typed. */
function modelField(session, signal) {
  const list = el("datalist", { id: uniqueId("models") });
  const attributes = { name: "model", list: list.id, maxlength: 200, autocomplete: "off", spellcheck: "false" };
  const input = el("input", { ...attributes, placeholder: "Default model", value: session?.model ?? "" });
  get("/models", {}, signal).then(
    ({ default: name, items }) => {
      input.placeholder = `Default (${name})`;
      fill(list, items.map(({ model }) => el("option", { value: model })));
    },
    () => {}, // The field still works without suggestions.
  );
  return [field("Model", input, "Choose a model from the list or enter its name. Leave empty to use the default model."), list];
}

function settingsFields({ temperature = null, max_output_tokens: maxTokens = null, reasoning_effort: effort = null }) {
  const number = (name, value, attributes) => el("input", { type: "number", name, value: value ?? "", placeholder: "Default", ...attributes });
  const options = EFFORTS.map(([value, label]) => el("option", { value, selected: value === (effort ?? "") }, label));
  return el(
    "div",
    { class: "model-settings" },
    field("Temperature", number("temperature", temperature, { min: 0, max: 2, step: "any" })),
    field("Max output tokens", number("max_output_tokens", maxTokens, { min: 1, step: 1 })),
    field("Reasoning effort", el("select", { name: "reasoning_effort" }, options)),
  );
}

async function listSkills(place, chosen, signal) {
  try {
    const skills = await Array.fromAsync(listAll("/skills", {}, signal));
    const known = new Set(skills.map((one) => one.id));
    const versions = new Map(chosen.map((one) => [one.skill_id, one.version]));
    // The list does not contain archived skills, which a session can still have.
    const others = chosen.filter((one) => !known.has(one.skill_id)).map((one) => ({ id: one.skill_id, name: one.skill_id, latest_version: Infinity, default_version: null }));
    const all = [...skills, ...others];
    const empty = el("p", { class: "hint" }, "No skills yet. Create one on the Skills page.");
    const loaded = el("input", { type: "hidden", name: "skills loaded" });
    fill(place, loaded, all.length === 0 ? empty : all.map((one) => skillChoice(one, versions)));
  } catch (error) {
    if (!signal.aborted) fill(place, errorBox(error, () => listSkills(place, chosen, signal)));
  }
}

function skillChoice({ id, name: rawName, latest_version: latest, default_version: pinned }, chosen) {
  const name = visibleName(rawName);
  const isChosen = chosen.has(id);
  if (latest === null) {
    return el("label", { class: "choice muted" }, el("input", { type: "checkbox", disabled: true }), `${name} (no versions)`);
  }
  const version = el("input", {
    type: "number",
    name: `version ${id}`,
    min: 1,
    max: Number.isFinite(latest) && latest,
    disabled: !isChosen,
    value: chosen.get(id) ?? "",
    placeholder: Number.isFinite(latest) ? `Default (v${pinned ?? latest})` : "Default",
    "aria-label": `Pinned version of ${name}`,
  });
  const onChange = () => { version.disabled = !checkbox.checked; };
  const checkbox = el("input", { type: "checkbox", name: "skill", value: id, checked: isChosen, on: { change: onChange } });
  return el("div", { class: "skill-choice" }, el("label", { class: "choice" }, checkbox, name), version);
}
