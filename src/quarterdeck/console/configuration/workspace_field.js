// The workspace of a session: whether its agent has files and can run commands.

import { field } from "../dialogs.js";
import { el } from "../dom.js";

const KINDS = {
  sandbox: ["Sandbox", "The agent has a folder of its own, with file tools and a shell in a sandbox. Attached files are put there."],
  none: ["None", "The agent has no files and runs no commands. Attached files go to the model only."],
};
const DEFAULT = ["Default", "Set by the server, usually a sandbox."];

/** Null: the default of the server. */
export function workspaceName(kind) {
  return kind === null ? "Default" : KINDS[kind]?.[0] ?? kind;
}

/** `hasDefault`: whether the default of the server can be chosen. A session that exists has one of the kinds. */
export function workspaceField(kind, hasDefault) {
  const kinds = Object.entries({ ...(hasDefault && { "": DEFAULT }), ...KINDS });
  const options = kinds.map(([value, [label]]) => el("option", { value, selected: value === (kind ?? "") }, label));
  const select = el("select", { name: "workspace", on: { change: describe } }, options);
  const node = field("Workspace", select, " ");
  function describe() {
    node.querySelector(".hint").textContent = kinds.find(([value]) => value === select.value)?.[1][1] ?? "";
  }
  describe();
  return node;
}
