// The versions of a skill.

import { field } from "../dialogs.js";
import { el } from "../dom.js";
import { formatBytes, pluralize } from "../format.js";
import { navigate } from "../router.js";
import { relativeTime } from "../time_format.js";
import { userName } from "../users.js";
import { visibleText } from "../visible_text.js";

/** The version that sessions without a pinned version use, or null if the skill has no versions. */
export function usedVersion(skill) {
  return skill.default_version ?? skill.latest_version;
}

/** `use(version)` opens the dialog to use a version; null if the key is not allowed to. */
export function versionColumns(skill, use) {
  const used = usedVersion(skill);
  const link = ({ version }) => el("a", { class: "name", href: `#/skills/${skill.id}/versions/${version}` }, `Version ${version}`);
  const description = ({ frontmatter }) => visibleText(String(frontmatter?.description ?? ""));
  const columns = [
    { name: "Version", class: "short", cell: (one) => el("div", {}, link(one), " ", tags(skill, one.version)) },
    { name: "Description", cell: (one) => el("bdi", { class: "clamped" }, description(one)) },
    { name: "Size", class: "short", cell: (one) => formatBytes(one.bundle_bytes) },
    { name: "Pushed by", class: "short", cell: (one) => userName(one.created_by) },
    { name: "Pushed", class: "short", cell: (one) => relativeTime(one.created_at) },
  ];
  if (use) columns.push({ name: "Actions", class: "actions", cell: ({ version }) => version !== used && useButton(version, used, use) });
  return columns;
}

function useButton(version, used, use) {
  const label = version < used ? "Roll back" : "Use";
  const description = `${label}${version < used ? " to" : ""} version ${version}`;
  return el("button", { class: "small", type: "button", "aria-label": description, on: { click: () => use(version) } }, label);
}

function tags(skill, version) {
  const latest = skill.default_version === null ? "Latest (auto-update)" : "Latest";
  return [
    version === usedVersion(skill) && [el("span", { class: "tag good" }, "In use"), " "],
    version === skill.latest_version && el("span", { class: "tag" }, latest),
  ];
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
      number > 1 && [" · ", diffLink(skill, number - 1, number, `Compare with version ${number - 1}`)],
    ),
  );
}

export function diffLink(skill, from, to, text) {
  return el("a", { href: `#/skills/${skill.id}/diff?from=${from}&to=${to}` }, text);
}

export function compareForm(skill, from = skill.latest_version - 1, to = skill.latest_version) {
  const base = versionSelect("from", skill.latest_version, from);
  const head = versionSelect("to", skill.latest_version, to);
  const submit = (event) => {
    event.preventDefault();
    navigate(`/skills/${skill.id}/diff?from=${base.value}&to=${head.value}`);
  };
  return el(
    "form",
    { class: "toolbar compare", on: { submit } },
    field("Compare", base),
    field("with", head),
    el("button", { type: "submit" }, "Compare"),
  );
}

/** Version numbers have no gaps. */
function versionSelect(name, latest, selected) {
  const options = Array.from({ length: latest }, (_, index) => {
    const number = latest - index;
    return el("option", { value: String(number), selected: number === selected }, `Version ${number}`);
  });
  return el("select", { name }, options);
}
