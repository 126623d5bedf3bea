// The versions of a skill: as rows of a table, and two of them to be compared.

import { field } from "../dialogs.js";
import { el } from "../dom.js";
import { nameOf } from "../people.js";
import { go } from "../router.js";
import { when } from "../times.js";
import { visible } from "../visible.js";
import { bytes, count, usedVersion } from "./words.js";

/** `use(version)` asks whether sessions should use it; null for who may not. */
export function versionColumns(skill, use) {
  const used = usedVersion(skill);
  const address = (one) => `#/skills/${skill.id}/versions/${one.version}`;
  const named = (one) => el("div", {}, el("a", { href: address(one) }, `Version ${one.version}`));
  const described = (one) => visible(String(one.frontmatter?.description ?? ""));
  const columns = [
    { name: "Version", cell: (one) => el("div", {}, named(one), el("div", {}, tags(skill, one.version))) },
    { name: "Description", cell: (one) => el("bdi", { class: "clamped" }, described(one)) },
    { name: "Size", class: "short", cell: (one) => bytes(one.bundle_bytes) },
    { name: "Pushed by", cell: (one) => nameOf(one.created_by) },
    { name: "Pushed", class: "short", cell: (one) => when(one.created_at) },
  ];
  const button = (version) => {
    const word = version < used ? "Roll back" : "Use";
    const label = `${word}${version < used ? " to" : ""} version ${version}`;
    return el(
      "button",
      { class: "small", type: "button", "aria-label": label, on: { click: () => use(version) } },
      word,
    );
  };
  if (use) columns.push({ name: "Use", class: "actions", cell: (one) => one.version !== used && button(one.version) });
  return columns;
}

function tags(skill, version) {
  const latest = skill.default_version === null ? "latest, followed" : "latest";
  return [
    version === usedVersion(skill) && [el("span", { class: "tag good" }, "in use"), " "],
    version === skill.latest_version && el("span", { class: "tag" }, latest),
  ];
}

/** Said after a push. */
export function arrived(skill, version) {
  const { version: number, manifest } = version;
  const used = usedVersion(skill);
  const holds = `${count(manifest.files.length, "file")}, ${bytes(manifest.unpacked_bytes)}. `;
  const fate =
    used === number
      ? "Sessions use it from their next run on."
      : `Sessions go on using version ${used}, which was set.`;
  return el(
    "div",
    { class: "arrived", role: "status", tabindex: "-1" },
    el("p", {}, el("strong", {}, `Version ${number} was pushed: `), holds, fate),
    el(
      "p",
      {},
      el("a", { href: `#/skills/${skill.id}/versions/${number}` }, `Look at version ${number}`),
      number > 1 && [" · ", comparison(skill, number - 1, number, `Compare it with version ${number - 1}`)],
    ),
  );
}

/** A link to the comparison of two versions. */
export function comparison(skill, from, to, text) {
  return el("a", { href: `#/skills/${skill.id}/diff?from=${from}&to=${to}` }, text);
}

/** The page of the comparison has it too, and gives what is compared there. */
export function compareForm(skill, from = skill.latest_version - 1, to = skill.latest_version) {
  const base = select("from", skill.latest_version, from);
  const head = select("to", skill.latest_version, to);
  const submit = (event) => {
    event.preventDefault();
    go(`/skills/${skill.id}/diff?from=${base.value}&to=${head.value}`);
  };
  return el(
    "form",
    { class: "toolbar compare", on: { submit } },
    field("Compare", base),
    field("with", head),
    el("button", { type: "submit" }, "Compare"),
  );
}

/** Versions have no gaps, so the latest tells them all. */
function select(name, latest, chosen) {
  const options = Array.from({ length: latest }, (_, at) => {
    const number = latest - at;
    return el("option", { value: String(number), selected: number === chosen }, `Version ${number}`);
  });
  return el("select", { name }, options);
}
