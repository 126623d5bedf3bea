// The dialog that changes the password of the person.

import { post } from "../api.js";
import { formDialog } from "../dialogs.js";
import { el } from "../dom.js";
import { FieldError } from "../form_errors.js";
import { newPassword, passwordField } from "./password_field.js";

/** Returns the profile, or null. */
export function changePassword({ user, has_password: hasPassword }) {
  return formDialog({
    title: hasPassword ? "Change password" : "Set a password",
    fields: [
      // For password managers.
      el("input", { hidden: true, type: "text", value: user.primary_email ?? "", autocomplete: "username", "aria-label": "Email" }),
      hasPassword && passwordField("Current password", "current_password"),
      passwordField("New password", "new_password", { isNew: true }),
      el("p", { class: "hint" }, "All your other devices are signed out."),
    ],
    confirm: "Save password",
    async act(data) {
      const body = { new_password: newPassword(data, "new_password"), current_password: data.get("current_password") };
      try {
        return await post("/profile/password", body);
      } catch (error) {
        throw error.status === 400 && hasPassword ? new FieldError("current_password", error.message) : error;
      }
    },
  });
}
