// Model, skills and instructions of a session.

import { get } from "../api.js";
import { tokenSessionId } from "../credential.js";
import { el, fill } from "../dom.js";
import { relativeTime } from "../time_format.js";
import { userName } from "../users.js";
import { visibleName } from "../visible_text.js";

export function sessionDetails(session, signal) {
  return el(
    "dl",
    { class: "facts small-text" },
    row("Model", session.model ?? "Default model"),
    row("Skills", session.skills.length === 0 ? "None" : session.skills.map((one) => skill(one, signal))),
    row("Created", relativeTime(session.created_at), ` by ${userName(session.created_by)}`),
    session.instructions && row("Instructions", instructions(session.instructions)),
  );
}

function row(name, ...value) {
  return [el("dt", {}, name), el("dd", {}, value)];
}

/** A session contains only the ids of its skills, and a session token is not allowed to read their names. */
function skill({ skill_id: id, version }, signal) {
  const pinned = version === null ? "" : ` v${version}`;
  if (tokenSessionId() !== null) return el("div", {}, el("code", {}, id), pinned);
  const link = el("a", { href: `#/skills/${id}` }, id);
  get(`/skills/${id}`, {}, signal).then(
    (found) => fill(link, visibleName(found.name)),
    () => {}, // The id stays as the link text.
  );
  return el("div", {}, link, pinned);
}

function instructions(text) {
  return el("details", {}, el("summary", {}, "Show"), el("p", { class: "preformatted" }, text));
}
