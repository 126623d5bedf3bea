// The versions of a skill.

import { el } from "../dom.js";
import { formatBytes, pluralize } from "../format.js";
import { relativeTime } from "../time_format.js";
import { userName } from "../users.js";
import { diffLink, useButton, usedVersion, versionTags } from "../versions.js";
import { visibleText } from "../visible_text.js";

/** `use(version)` opens the dialog to use a version; null if the key is not allowed to. */
export function versionColumns(skill, use) {
  const link = ({ version }) => el("a", { class: "name", href: `#/skills/${skill.id}/versions/${version}` }, `Version ${version}`);
  const description = ({ frontmatter }) => visibleText(String(frontmatter?.description ?? ""));
  const columns = [
    { name: "Version", class: "short", cell: (one) => el("div", {}, link(one), " ", versionTags(skill, one.version)) },
    { name: "Description", cell: (one) => el("bdi", { class: "clamped" }, description(one)) },
    { name: "Size", class: "short", cell: (one) => formatBytes(one.bundle_bytes) },
    { name: "Pushed by", class: "short", cell: (one) => userName(one.created_by) },
    { name: "Pushed", class: "short", cell: (one) => relativeTime(one.created_at) },
  ];
  if (use) columns.push({ name: "Actions", class: "actions", cell: ({ version }) => version !== usedVersion(skill) && useButton(skill, version, use) });
  return columns;
}

/** The message after a push. */
export function pushResult(skill, version) {
  const { version: number, manifest } = version;
  const used = usedVersion(skill);
  const size = `${pluralize(manifest.files.length, "file")}, ${formatBytes(manifest.unpacked_bytes)}. `;
  const effect =
    used === number
      ? "Sessions use it from their next run."
      : `Sessions still use version ${used}: the skill is pinned to it.`;
  return el(
    "div",
    { class: "push-result", role: "status", tabindex: "-1" },
    el("p", {}, el("strong", {}, `Version ${number} pushed: `), size, effect),
    el(
      "p",
      {},
      el("a", { href: `#/skills/${skill.id}/versions/${number}` }, `View version ${number}`),
      number > 1 && [" · ", diffLink(`/skills/${skill.id}`, number - 1, number, `Compare with version ${number - 1}`)],
    ),
  );
}
