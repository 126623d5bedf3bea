// The dialog that edits a session.

import { patch } from "../api.js";
import { formDialog } from "../dialogs.js";
import { sessionForm } from "./session_form.js";

/** Returns the changed session, or null. */
export function editSession(session, signal) {
  const form = sessionForm(session, session.agent, signal);
  return formDialog({
    title: "Edit session",
    confirm: "Save",
    fields: form.fields,
    act: (data) => patch(`/sessions/${session.id}`, changes(session, form.read(data)), signal),
  });
}

/** Only what has changed: an unchanged value may no longer be valid, such as a model whose provider was removed. */
function changes(session, { title, agent, values, inherited }) {
  const isOther = (value, old) => JSON.stringify(value) !== JSON.stringify(old);
  const oldAgent = session.agent && { agent_id: session.agent.agent_id, version: session.agent.version };
  const { overrides } = session;
  // A field becomes an override by being sent.
  const isSent = ([name, value]) => isOther(value, session[name]) || (agent !== null && !overrides.includes(name));
  const inherit = inherited.filter((name) => overrides.includes(name));
  return {
    ...(title !== session.title && { title }),
    ...(isOther(agent, oldAgent) && { agent }),
    ...Object.fromEntries(Object.entries(values).filter(isSent)),
    ...(inherit.length > 0 && { inherit }),
  };
}
