// A new session: what it is called, what drives it, what it is told, which skills it has.

import { all, post } from "../api.js";
import { field, formDialog } from "../dialogs.js";
import { el, fill } from "../dom.js";
import { faultBox, loading } from "../notices.js";
import { named } from "../visible.js";

/** The session, or null if the person thought better of it. */
export function createSession(signal) {
  const skills = el("div", { class: "skill-choices" }, loading("the skills"));
  const title = el("input", { name: "title", maxlength: 200, autofocus: true });
  const asName = { maxlength: 200, autocomplete: "off", spellcheck: "false" };
  const model = el("input", { name: "model", placeholder: "provider:name", ...asName });
  const instructions = el("textarea", { name: "instructions", rows: 3 });
  listSkills(skills, signal);
  return formDialog({
    title: "New session",
    confirm: "Create",
    fields: [
      field("Title", title, "What you will find it by. It can be left empty."),
      field("Model", model, "Empty: as the server is set. “demo” works without a provider."),
      field("Instructions", instructions, "What the agent is told before everything else."),
      el("fieldset", {}, el("legend", {}, "Skills"), skills),
    ],
    act: (data) => post("/sessions", asked(data), signal),
  });
}

function asked(data) {
  const version = (id) => data.get(`version ${id}`);
  return {
    title: data.get("title").trim() || null,
    model: data.get("model").trim() || null,
    instructions: data.get("instructions").trim() || null,
    skills: data.getAll("skill").map((id) => ({ skill_id: id, version: version(id) ? Number(version(id)) : null })),
  };
}

async function listSkills(place, signal) {
  try {
    const found = await Array.fromAsync(all("/skills", {}, signal));
    const empty = "The workspace has no skills yet. Push one under Skills, and sessions can use it.";
    fill(place, found.length === 0 ? el("p", { class: "hint" }, empty) : found.map(choice));
  } catch (fault) {
    if (!signal.aborted) fill(place, faultBox(fault, () => listSkills(place, signal)));
  }
}

function choice({ id, name: given, latest_version: latest, default_version: standard }) {
  const name = named(given);
  if (latest === null) {
    const check = el("input", { type: "checkbox", disabled: true });
    return el("label", { class: "choice quiet" }, check, `${name}: no version was pushed yet`);
  }
  const version = el("input", {
    type: "number",
    name: `version ${id}`,
    min: 1,
    max: latest,
    disabled: true,
    placeholder: `follows: v${standard ?? latest}`,
    "aria-label": `Pinned version of ${name}`,
  });
  const change = () => { version.disabled = !check.checked; };
  const check = el("input", { type: "checkbox", name: "skill", value: id, on: { change } });
  return el("div", { class: "skill-choice" }, el("label", { class: "choice" }, check, name), version);
}
