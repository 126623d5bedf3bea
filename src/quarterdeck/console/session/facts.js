// What a session was set up with.

import { get } from "../api.js";
import { onlySession } from "../credential.js";
import { el, fill } from "../dom.js";
import { nameOf } from "../people.js";
import { when } from "../times.js";
import { named } from "../visible.js";

export function facts(session, signal) {
  return el(
    "dl",
    { class: "facts small-text" },
    fact("Model", session.model ?? "as the server is set"),
    fact("Skills", session.skills.length === 0 ? "none" : session.skills.map((one) => skill(one, signal))),
    fact("Created", when(session.created_at), ` by ${nameOf(session.created_by)}`),
    session.instructions && fact("Instructions", instructions(session.instructions)),
  );
}

function fact(name, ...value) {
  return [el("dt", {}, name), el("dd", {}, value)];
}

/** The session knows its id only. A session token may not ask for its name. */
function skill({ skill_id: id, version }, signal) {
  const follows = version === null ? "" : ` v${version}`;
  if (onlySession() !== null) return el("div", {}, el("code", {}, id), follows);
  const link = el("a", { href: `#/skills/${id}` }, id);
  get(`/skills/${id}`, {}, signal).then(
    (found) => fill(link, named(found.name)),
    () => {}, // The id has to do.
  );
  return el("div", {}, link, follows);
}

function instructions(text) {
  return el("details", {}, el("summary", {}, "Show"), el("p", { class: "as-typed" }, text));
}
