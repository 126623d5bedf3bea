// The form of a session, for the dialogs that create and edit one.

import { EMPTY } from "../configuration/fields.js";
import { configurationForm } from "../configuration/form.js";
import { field } from "../dialogs.js";
import { el } from "../dom.js";
import { agentPicker } from "./agent_picker.js";

const INSTRUCTION_ROWS = 3;

/**
 * `session`: null for a new one. `agent`: `{agent_id, version, name}` that is chosen at first. Returns `{fields, read(data)}`;
 * `read` returns `{title, agent, values, inherited}`: the values of the fields that do not follow the agent, and the names of those that do.
 */
export function sessionForm(session, agent, signal) {
  const title = el("input", { name: "title", maxlength: 200, value: session?.title ?? "", autofocus: true });
  const options = { signal, instructionRows: INSTRUCTION_ROWS, isFolded: true };
  const overrides = session?.agent ? session.overrides : null;
  const form = configurationForm({ values: session ?? EMPTY, overrides, options });
  const picker = agentPicker(agent, signal, (configuration) => {
    if (configuration === null) form.release(session ?? EMPTY);
    else form.follow(configuration);
  });
  // For a session that has this agent, `overrides` tells more than the agent does.
  if (agent !== null) picker.choose();
  return {
    fields: [field("Title", title), picker.node, form.node],
    read(data) {
      return { title: data.get("title").trim() || null, agent: picker.value(), values: form.values(data), inherited: form.inherited() };
    },
  };
}
