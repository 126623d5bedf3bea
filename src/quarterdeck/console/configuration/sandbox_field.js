// The sandbox of a session: whether its agent has files and can run commands. Null: none. An object: its settings, which has no fields yet.

import { field } from "../dialogs.js";
import { el } from "../dom.js";

const CHOICES = {
  default: ["Default", "Set by the server, usually on."],
  on: ["On", "The agent has a folder of its own, with file tools and a shell in a sandbox. Attached files are put there."],
  off: ["Off", "The agent has no files and runs no commands. Attached files go to the model only."],
};

export function sandboxName(sandbox) {
  return CHOICES[choiceOf(sandbox)][0];
}

/** `sandbox`: undefined if it is not set yet. Only then the default of the server can be chosen. */
export function sandboxField(sandbox) {
  const names = Object.keys(CHOICES).filter((name) => name !== "default" || sandbox === undefined);
  const options = names.map((value) => el("option", { value, selected: value === choiceOf(sandbox) }, CHOICES[value][0]));
  const select = el("select", { name: "sandbox", on: { change: describe } }, options);
  const node = field("Sandbox", select, " ");
  function describe() {
    node.querySelector(".hint").textContent = CHOICES[select.value][1];
  }
  describe();
  return node;
}

/** Undefined: the default of the server. */
export function sandboxValue(data) {
  return { on: {}, off: null }[data.get("sandbox")];
}

function choiceOf(sandbox) {
  if (sandbox === undefined) return "default";
  return sandbox === null ? "off" : "on";
}
