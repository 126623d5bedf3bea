// Questions that change a skill. `change(body, said)` sends the change and says so.

import { field, formDialog } from "../dialogs.js";
import { el } from "../dom.js";
import { named } from "../visible.js";
import { usedVersion } from "./words.js";

const ARCHIVING =
  "It takes no further versions and no further sessions. Those that have it keep it, and it can be brought back.";

export function askName(skill, change) {
  const input = el("input", { name: "name", required: true, maxlength: 200, autocomplete: "off", value: skill.name });
  return formDialog({
    title: "Rename the skill",
    fields: [field("Name", input)],
    confirm: "Rename",
    act: (data) => change({ name: data.get("name").trim() }, "The skill was renamed."),
  });
}

export function askArchive(skill, change) {
  const name = named(skill.name);
  const back = skill.archived_at !== null;
  return formDialog({
    title: back ? `Bring back ${name}?` : `Archive ${name}?`,
    fields: el("p", {}, back ? "It takes versions and sessions again." : ARCHIVING),
    confirm: back ? "Bring back" : "Archive",
    act: () => change({ archived: !back }, back ? `${name} was brought back.` : `${name} was archived.`),
  });
}

/** `version` null: the latest, whichever that is. */
export function askUse(skill, version, change) {
  const name = named(skill.name);
  const follows = version === null;
  const what = follows ? `the latest version of ${name}, now ${skill.latest_version}` : `version ${version} of ${name}`;
  const later = "Versions that are pushed later are not used until you say so here. No version is lost.";
  return formDialog({
    title: follows ? "Follow the latest version?" : `Use version ${version}?`,
    fields: [
      el(
        "p",
        {},
        `Sessions that pin no version use ${what}, from their next run on. Now: version ${usedVersion(skill)}.`,
      ),
      !follows && el("p", { class: "quiet" }, later),
    ],
    confirm: follows ? "Follow the latest" : `Use version ${version}`,
    act: () => change({ default_version: version }, `Sessions now use ${what}.`),
  });
}
