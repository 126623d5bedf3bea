// Numbered versions of a skill or an agent. `owner` has `latest_version` and `default_version`; `path` is its address.

import { field } from "./dialogs.js";
import { el } from "./dom.js";
import { navigate } from "./router.js";

/** The version that sessions without a pinned version use, or null if there are no versions. */
export function usedVersion(owner) {
  return owner.default_version ?? owner.latest_version;
}

/** `Latest (auto-update)` or `Pinned to version 2`, or null if there are no versions. */
export function versionChoice({ default_version: pinned, latest_version: latest }) {
  if (latest === null) return null;
  return pinned === null ? "Latest (auto-update)" : `Pinned to version ${pinned}`;
}

export function versionTags(owner, version) {
  const latest = owner.default_version === null ? "Latest (auto-update)" : "Latest";
  return [
    version === usedVersion(owner) && [el("span", { class: "tag good" }, "In use"), " "],
    version === owner.latest_version && el("span", { class: "tag" }, latest),
  ];
}

/** `Roll back` or `Use`. `use(version)` opens the dialog. */
export function useButton(owner, version, use) {
  const used = usedVersion(owner);
  const label = version < used ? "Roll back" : "Use";
  const description = `${label}${version < used ? " to" : ""} version ${version}`;
  return el("button", { class: "small", type: "button", "aria-label": description, on: { click: () => use(version) } }, label);
}

export function diffLink(path, from, to, text) {
  return el("a", { href: `#${path}/diff?from=${from}&to=${to}` }, text);
}

export function compareForm(path, { latest_version: latest }, from = latest - 1, to = latest) {
  const base = versionSelect("from", latest, from);
  const head = versionSelect("to", latest, to);
  const submit = (event) => {
    event.preventDefault();
    navigate(`${path}/diff?from=${base.value}&to=${head.value}`);
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

/** The versions that the address of a page compares: `{from, to}`. By default the latest and the one before it. */
export function comparedVersions(query, { latest_version: latest }) {
  const to = versionParameter(query, "to") ?? latest;
  return { from: versionParameter(query, "from") ?? Math.max(1, to - 1), to };
}

function versionParameter(query, name) {
  const value = query.get(name) ?? "";
  return /^[0-9]{1,10}$/.test(value) ? Number(value) : null;
}
