// Dialogs that change a skill. `change(body, message)` sends the change and shows the message.

import { field, formDialog } from "../dialogs.js";
import { el } from "../dom.js";
import { visibleName } from "../visible_text.js";
import { usedVersion } from "./versions.js";

export function renameDialog(skill, change) {
  const input = el("input", { name: "name", required: true, maxlength: 200, autocomplete: "off", value: skill.name });
  return formDialog({
    title: "Rename skill",
    fields: [field("Name", input)],
    confirm: "Rename",
    act: (data) => change({ name: data.get("name").trim() }, "Skill renamed."),
  });
}

export function archiveDialog(skill, change) {
  const name = visibleName(skill.name);
  if (skill.archived_at !== null) {
    return formDialog({
      title: `Unarchive ${name}?`,
      fields: el("p", {}, "New sessions can use this skill again, and versions can be pushed."),
      confirm: "Unarchive",
      act: () => change({ archived: false }, `${name} was unarchived.`),
    });
  }
  return formDialog({
    title: `Archive ${name}?`,
    fields: el("p", {}, "New sessions can't use this skill, and no versions can be pushed. Existing sessions keep it. You can unarchive it at any time."),
    confirm: "Archive",
    act: () => change({ archived: true }, `${name} was archived.`),
  });
}

/** The server refuses to delete a skill that a session uses, and says so. */
export function deleteDialog(skill, destroy) {
  const name = visibleName(skill.name);
  return formDialog({
    title: `Delete ${name}?`,
    fields: el("p", {}, "This deletes the skill with all its versions. Skills that a session uses can only be archived. This can't be undone."),
    confirm: "Delete skill",
    danger: true,
    act: destroy,
  });
}

/** `version` null: always use the latest version. */
export function useVersionDialog(skill, version, change) {
  const isLatest = version === null;
  const target = isLatest ? `the latest version (now version ${skill.latest_version})` : `version ${version}`;
  return formDialog({
    title: isLatest ? "Use the latest version?" : `Use version ${version}?`,
    fields: [
      el("p", {}, `Sessions without a pinned version will use ${target} from their next run. Current version: ${usedVersion(skill)}.`),
      !isLatest && el("p", { class: "muted" }, "Versions pushed later are not used automatically. All versions are kept."),
    ],
    confirm: isLatest ? "Use latest" : `Use version ${version}`,
    act: () => change({ default_version: version }, `Sessions now use ${target}.`),
  });
}
