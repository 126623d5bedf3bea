// The dialog that deletes a skill.

import { formDialog } from "../dialogs.js";
import { el } from "../dom.js";
import { visibleName } from "../visible_text.js";

/** The server refuses to delete a skill that a session or an agent uses, and says so. */
export function deleteDialog(skill, destroy) {
  const name = visibleName(skill.name);
  return formDialog({
    title: `Delete ${name}?`,
    fields: el("p", {}, "This deletes the skill with all its versions. Skills that a session or an agent uses can only be archived. This can't be undone."),
    confirm: "Delete skill",
    danger: true,
    act: destroy,
  });
}
