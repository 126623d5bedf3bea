// The roles of members.

import { whoami } from "../credential.js";
import { el, uniqueId } from "../dom.js";
import { capitalize } from "../format.js";

/** @type {[string, string][]} */
const ROLES = [
  ["owner", "Does everything, and is the only one who can add and remove owners."],
  ["admin", "Also manages members, keys, credentials, webhooks and limits."],
  ["member", "Also starts sessions, answers requests, and changes agents and skills."],
  ["viewer", "Sees everything in the workspace except secrets, and changes nothing."],
];

export function roleTag(role) {
  return el("span", { class: "tag" }, capitalize(role));
}

/** The field `role` of a form. */
export function roleField(selected) {
  const mayMakeOwners = whoami().role === "owner";
  const choices = ROLES.map(([role, description]) => {
    const disabled = role === "owner" && !mayMakeOwners;
    const hintId = uniqueId("hint");
    const radio = el("input", { type: "radio", name: "role", value: role, id: uniqueId("role"), checked: role === selected, disabled, "aria-describedby": hintId });
    const hint = el("p", { class: "hint", id: hintId }, description, disabled && " Only an owner can make others owners.");
    return el("div", { class: "choice" }, radio, el("div", {}, el("label", { for: radio.id }, capitalize(role)), hint));
  });
  return el("fieldset", {}, el("legend", {}, "Role"), choices);
}
