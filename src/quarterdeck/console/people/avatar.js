// A person as a picture: the initials of the name.

import { el } from "../dom.js";
import { userName } from "../users.js";

/** Hidden from screen readers: the name stands beside it. */
export function avatar(user) {
  return el("span", { class: "avatar", "aria-hidden": "true" }, initials(userName(user)));
}

/** `Ada Marlowe` → `AM`, `grace@example.com` → `G`. */
function initials(name) {
  const words = name.replace(/@.*/, "").split(/\s+/).filter(Boolean);
  const first = [words[0], words.length > 1 && words.at(-1)].filter(Boolean);
  return first.map((word) => [...word][0]).join("").toUpperCase() || "?";
}
