// Dialogs that change a skill or an agent. `change(body, message)` sends the change and shows the message.

import { field, formDialog } from "./dialogs.js";
import { el } from "./dom.js";
import { capitalize } from "./format.js";
import { usedVersion } from "./versions.js";
import { visibleName } from "./visible_text.js";

/** `noun`: `skill` or `agent`. */
export function renameDialog(noun, owner, change) {
  const input = el("input", { name: "name", required: true, maxlength: 200, autocomplete: "off", value: owner.name });
  return formDialog({
    title: `Rename ${noun}`,
    fields: [field("Name", input)],
    confirm: "Rename",
    act: (data) => change({ name: data.get("name").trim() }, `${capitalize(noun)} renamed.`),
  });
}

export function archiveDialog(noun, owner, change) {
  const name = visibleName(owner.name);
  if (owner.archived_at !== null) {
    return formDialog({
      title: `Unarchive ${name}?`,
      fields: el("p", {}, `New sessions can use this ${noun} again, and versions can be pushed.`),
      confirm: "Unarchive",
      act: () => change({ archived: false }, `${name} was unarchived.`),
    });
  }
  return formDialog({
    title: `Archive ${name}?`,
    fields: el("p", {}, `New sessions can't use this ${noun}, and no versions can be pushed. Existing sessions keep it. You can unarchive it at any time.`),
    confirm: "Archive",
    act: () => change({ archived: true }, `${name} was archived.`),
  });
}

/** `version` null: always use the latest version. */
export function useVersionDialog(owner, version, change) {
  const isLatest = version === null;
  const target = isLatest ? `the latest version (now version ${owner.latest_version})` : `version ${version}`;
  return formDialog({
    title: isLatest ? "Use the latest version?" : `Use version ${version}?`,
    fields: [
      el("p", {}, `Sessions without a pinned version will use ${target} from their next run. Current version: ${usedVersion(owner)}.`),
      !isLatest && el("p", { class: "muted" }, "Versions pushed later are not used automatically. All versions are kept."),
    ],
    confirm: isLatest ? "Use latest" : `Use version ${version}`,
    act: () => change({ default_version: version }, `Sessions now use ${target}.`),
  });
}
