// The versions of an agent.

import { el } from "../dom.js";
import { relativeTime } from "../time_format.js";
import { userName } from "../users.js";
import { diffLink, useButton, usedVersion, versionTags } from "../versions.js";
import { visibleName } from "../visible_text.js";

/** `use(version)` opens the dialog to use a version; null if the key is not allowed to. */
export function versionColumns(agent, use) {
  const path = `/agents/${agent.id}`;
  const link = ({ version }) => el("a", { class: "name", href: `#${path}/versions/${version}` }, `Version ${version}`);
  const columns = [
    { name: "Version", class: "short", cell: (one) => el("div", {}, link(one), " ", versionTags(agent, one.version)) },
    { name: "Model", cell: modelName },
    { name: "Changes", class: "short", cell: ({ version }) => (version > 1 ? diffLink(path, version - 1, version, `Since version ${version - 1}`) : el("span", { class: "muted" }, "–")) },
    { name: "Created by", class: "short", cell: (one) => userName(one.created_by) },
    { name: "Created", class: "short", cell: (one) => relativeTime(one.created_at) },
  ];
  if (use) columns.push({ name: "Actions", class: "actions", cell: ({ version }) => version !== usedVersion(agent) && useButton(agent, version, use) });
  return columns;
}

/** The model of an agent or a version. */
export function modelName({ model }) {
  return model === null ? el("span", { class: "muted" }, "Default model") : visibleName(model);
}
