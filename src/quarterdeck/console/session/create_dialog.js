// The dialog that creates a session.

import { listAll, post } from "../api.js";
import { field, formDialog } from "../dialogs.js";
import { el, fill } from "../dom.js";
import { errorBox, loading } from "../notices.js";
import { visibleName } from "../visible_text.js";

/** Returns the created session, or null. */
export function createSession(signal) {
  const skills = el("div", { class: "skill-choices" }, loading("skills"));
  const title = el("input", { name: "title", maxlength: 200, autofocus: true });
  const model = el("input", { name: "model", placeholder: "provider:name", maxlength: 200, autocomplete: "off", spellcheck: "false" });
  const instructions = el("textarea", { name: "instructions", rows: 3 });
  listSkills(skills, signal);
  return formDialog({
    title: "New session",
    confirm: "Create",
    fields: [
      field("Title", title, "Optional."),
      field("Model", model, "Leave empty to use the default model. “demo” needs no provider."),
      field("Instructions", instructions, "Optional. Instructions that the agent always follows."),
      el("fieldset", {}, el("legend", {}, "Skills"), skills),
    ],
    act: (data) => post("/sessions", requestBody(data), signal),
  });
}

function requestBody(data) {
  const pinned = (id) => data.get(`version ${id}`);
  return {
    title: data.get("title").trim() || null,
    model: data.get("model").trim() || null,
    instructions: data.get("instructions").trim() || null,
    skills: data.getAll("skill").map((id) => ({ skill_id: id, version: pinned(id) ? Number(pinned(id)) : null })),
  };
}

async function listSkills(place, signal) {
  try {
    const skills = await Array.fromAsync(listAll("/skills", {}, signal));
    const empty = "No skills yet. Create one on the Skills page.";
    fill(place, skills.length === 0 ? el("p", { class: "hint" }, empty) : skills.map(skillChoice));
  } catch (error) {
    if (!signal.aborted) fill(place, errorBox(error, () => listSkills(place, signal)));
  }
}

function skillChoice({ id, name: rawName, latest_version: latest, default_version: pinned }) {
  const name = visibleName(rawName);
  if (latest === null) {
    return el("label", { class: "choice muted" }, el("input", { type: "checkbox", disabled: true }), `${name} (no versions)`);
  }
  const version = el("input", {
    type: "number",
    name: `version ${id}`,
    min: 1,
    max: latest,
    disabled: true,
    placeholder: `Default (v${pinned ?? latest})`,
    "aria-label": `Pinned version of ${name}`,
  });
  const onChange = () => { version.disabled = !checkbox.checked; };
  const checkbox = el("input", { type: "checkbox", name: "skill", value: id, on: { change: onChange } });
  return el("div", { class: "skill-choice" }, el("label", { class: "choice" }, checkbox, name), version);
}
