// Lists of skills and of MCP servers to choose from. Each list is loaded when its field is built.

import { listAll } from "../api.js";
import { el, fill } from "../dom.js";
import { errorBox, loading } from "../notices.js";
import { visibleName, visibleText } from "../visible_text.js";

/** `chosen`: `[{skill_id, version}]`. The form has no value for the skills until they are loaded. */
export function skillsField(chosen, signal) {
  const versions = new Map(chosen.map((one) => [one.skill_id, one.version]));
  // The list does not contain archived skills, which a session can still have.
  const missing = (id) => ({ id, name: id, latest_version: Infinity, default_version: null });
  const empty = "No skills yet. Create one on the Skills page.";
  return choicesField({ legend: "Skills", noun: "skills", path: "/skills", chosen: [...versions.keys()], missing, choice: (one) => skillChoice(one, versions), empty, loaded: "skills loaded", signal });
}

export function skillsValue(data) {
  if (!data.has("skills loaded")) return undefined;
  const pinned = (id) => data.get(`version ${id}`);
  return data.getAll("skill").map((id) => ({ skill_id: id, version: pinned(id) ? Number(pinned(id)) : null }));
}

/** `chosen`: ids. */
export function serversField(chosen, signal) {
  const missing = (id) => ({ id, name: id, isDeleted: true });
  const empty = "No MCP servers yet. Add one on the MCP servers page.";
  return choicesField({ legend: "MCP servers", noun: "MCP servers", path: "/mcp-servers", chosen, missing, choice: (one) => serverChoice(one, chosen), empty, loaded: "servers loaded", signal });
}

export function serversValue(data) {
  return data.has("servers loaded") ? data.getAll("server") : undefined;
}

function choicesField({ legend, noun, path, chosen, missing, choice, empty, loaded, signal }) {
  const container = el("div", { class: "skill-choices" }, loading(noun));
  async function load() {
    try {
      const items = await Array.fromAsync(listAll(path, {}, signal));
      const known = new Set(items.map((one) => one.id));
      const all = [...items, ...chosen.filter((id) => !known.has(id)).map(missing)];
      const mark = el("input", { type: "hidden", name: loaded });
      fill(container, mark, all.length === 0 ? el("p", { class: "hint" }, empty) : all.map(choice));
    } catch (error) {
      if (!signal.aborted) fill(container, errorBox(error, load));
    }
  }
  load();
  return el("fieldset", {}, el("legend", {}, legend), container);
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

function serverChoice({ id, name, url, command, isDeleted = false }, chosen) {
  const checkbox = el("input", { type: "checkbox", name: "server", value: id, checked: chosen.includes(id) });
  const target = isDeleted ? "Deleted" : visibleText(url ?? command);
  return el("label", { class: "choice server-choice" }, checkbox, el("span", {}, visibleName(name), " ", el("span", { class: "muted small-text" }, target)));
}
