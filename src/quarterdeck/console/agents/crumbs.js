// The links above the pages of an agent.

import { el } from "../dom.js";
import { visibleName } from "../visible_text.js";

export function agentCrumbs(agent) {
  return el(
    "p",
    { class: "crumbs" },
    el("a", { href: "#/agents" }, "All agents"),
    agent && [" › ", el("a", { href: `#/agents/${agent.id}` }, el("bdi", {}, visibleName(agent.name)))],
  );
}
