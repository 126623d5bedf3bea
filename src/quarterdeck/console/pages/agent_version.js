// One version of an agent.

import { agentCrumbs } from "../agents/crumbs.js";
import { configurationNames, configurationView } from "../agents/configuration_view.js";
import { get } from "../api.js";
import { can } from "../credential.js";
import { el, fill } from "../dom.js";
import { relativeTime } from "../time_format.js";
import { userName } from "../users.js";
import { diffLink, usedVersion } from "../versions.js";
import { visibleName } from "../visible_text.js";

export async function show(view, { id, version: number }) {
  const path = `/agents/${encodeURIComponent(id)}`;
  const [agent, version] = await Promise.all([get(path, {}, view.signal), get(`${path}/versions/${encodeURIComponent(number)}`, {}, view.signal)]);
  if (view.signal.aborted) return;
  const canEdit = can("agent.manage") && agent.archived_at === null;
  fill(
    view.main,
    agentCrumbs(agent),
    view.title(
      `${visibleName(agent.name)}, version ${version.version}`,
      canEdit && el("a", { class: "button", href: `#${path}/edit?from=${version.version}` }, "New version from this one"),
    ),
    el("p", { class: "muted" }, state(agent, version), " Created ", relativeTime(version.created_at), ` by ${userName(version.created_by)}.`, version.version > 1 && [" ", diffLink(path, version.version - 1, version.version, `Changes since version ${version.version - 1}`)]),
    configurationView(version, configurationNames(view.signal)),
  );
}

function state(agent, { version: number }) {
  const used = usedVersion(agent);
  return number === used ? "In use." : `Not in use (version ${used} is).`;
}
