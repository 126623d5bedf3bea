// The dialog that creates a session.

import { post } from "../api.js";
import { formDialog } from "../dialogs.js";
import { sessionForm } from "./session_form.js";

/** `agent`: the agent that is chosen at first, or null. Returns the created session, or null. */
export function createSession(signal, agent = null) {
  const form = sessionForm(null, agent && { agent_id: agent.id, version: null, name: agent.name }, signal);
  return formDialog({
    title: "New session",
    confirm: "Create",
    fields: form.fields,
    act(data) {
      const { title, agent: chosen, values } = form.read(data);
      return post("/sessions", { title, ...(chosen && { agent: chosen }), ...values }, signal);
    },
  });
}
