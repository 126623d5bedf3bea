// The workspace of a session: whether its agent has files and can run commands.

import { field } from "../dialogs.js";
import { el } from "../dom.js";

const KINDS = {
  sandbox: ["Sandbox", "The agent has a folder of its own, with file tools and a shell in a sandbox. Attached files are put there."],
  none: ["None", "The agent has no files and runs no commands. Attached files go to the model only."],
};
const DEFAULT = ["Default", "Sandbox if the server has one, unless it is set otherwise."];

export function workspaceName(kind) {
  return KINDS[kind]?.[0] ?? kind;
}

/** `session`: null for a new one, which can have the default of the server. */
export function workspaceField(session) {
  const kinds = Object.entries({ ...(session === null && { "": DEFAULT }), ...KINDS });
  const current = session?.workspace ?? "";
  const options = kinds.map(([value, [label]]) => el("option", { value, selected: value === current }, label));
  const select = el("select", { name: "workspace", on: { change: describe } }, options);
  const node = field("Workspace", select, " ");
  function describe() {
    node.querySelector(".hint").textContent = kinds.find(([value]) => value === select.value)?.[1][1] ?? "";
  }
  describe();
  return node;
}
