// A link to an agent by its id.

import { get } from "../api.js";
import { tokenSessionId } from "../credential.js";
import { el, fill } from "../dom.js";
import { visibleName } from "../visible_text.js";

/** Loaded once for all runs of a session. */
const names = new Map();

/** The version of an agent that a run has used. A session token is not allowed to read the name. */
export function usedAgentLink({ agent_id: id, version }) {
  if (tokenSessionId() !== null) return el("span", {}, el("code", {}, id), ` v${version}`);
  const link = el("a", { href: `#/agents/${id}/versions/${version}` }, `Version ${version}`);
  if (!names.has(id)) names.set(id, get(`/agents/${id}`).then(({ name }) => visibleName(name)));
  names.get(id).then((name) => fill(link, `${name} v${version}`), () => names.delete(id));
  return link;
}
