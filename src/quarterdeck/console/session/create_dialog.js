// The dialog that creates a session.

import { post } from "../api.js";
import { formDialog } from "../dialogs.js";
import { formValues, sessionFields } from "./session_fields.js";

/** Returns the created session, or null. */
export function createSession(signal) {
  return formDialog({
    title: "New session",
    confirm: "Create",
    fields: sessionFields(null, signal),
    act: (data) => post("/sessions", formValues(data), signal),
  });
}
