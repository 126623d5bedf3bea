// The dialog that edits a session.

import { patch } from "../api.js";
import { formDialog } from "../dialogs.js";
import { formValues, sessionFields } from "./session_fields.js";

/** Returns the changed session, or null. */
export function editSession(session, signal) {
  return formDialog({
    title: "Edit session",
    confirm: "Save",
    fields: sessionFields(session, signal),
    act: (data) => patch(`/sessions/${session.id}`, changes(session, formValues(data)), signal),
  });
}

/** Only what has changed: an unchanged value may no longer be valid, such as a model whose provider was removed. */
function changes(session, values) {
  const isChanged = ([name, value]) => JSON.stringify(value) !== JSON.stringify(session[name]);
  return Object.fromEntries(Object.entries(values).filter(isChanged));
}
