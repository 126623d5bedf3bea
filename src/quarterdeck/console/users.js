// Names of users.

import { el } from "./dom.js";
import { visibleName } from "./visible_text.js";

export function userName(user) {
  return visibleName(user.display_name ?? user.primary_email ?? `User ${user.user_id.slice(0, 8)}`);
}

/** The name, with the email address as a tooltip if both are known. */
export function userLabel(user) {
  return el("span", { title: user.display_name && user.primary_email }, userName(user));
}
