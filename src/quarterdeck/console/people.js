// People as others know them.

import { el } from "./dom.js";
import { named } from "./visible.js";

export function nameOf(person) {
  return named(person.display_name ?? person.primary_email ?? `Person ${person.user_id.slice(0, 8)}`);
}

/** The name, with the address behind it where both are known. */
export function person(one) {
  return el("span", { title: one.display_name && one.primary_email }, nameOf(one));
}
