// One version of a skill: its frontmatter and its files.

import { get } from "../api.js";
import { copyButton } from "../clipboard.js";
import { el, fill } from "../dom.js";
import { formatBytes, pluralize } from "../format.js";
import { emptyState } from "../notices.js";
import { fileTree } from "../skills/file_tree.js";
import { downloadButton, showFile } from "../skills/file_view.js";
import { table } from "../tables.js";
import { diffLink, usedVersion } from "../versions.js";
import { visibleName, visibleText } from "../visible_text.js";

const DEFAULT_FILE = "SKILL.md";

export async function show(view, { id, version: number }) {
  const skillPath = `/skills/${encodeURIComponent(id)}`;
  const path = `${skillPath}/versions/${encodeURIComponent(number)}`;
  const [skill, version] = await Promise.all([get(skillPath, {}, view.signal), get(path, {}, view.signal)]);
  if (view.signal.aborted) return;
  const { files } = version.manifest;
  const contents = el("div", { class: "contents" });
  const link = (file) => `#${path}?path=${encodeURIComponent(file.path)}`;
  let currentFile = new AbortController();

  function load(file) {
    currentFile.abort();
    currentFile = new AbortController();
    tree.select(file.path);
    return showFile(contents, path, file, AbortSignal.any([view.signal, currentFile.signal]));
  }

  function open(file) {
    load(file);
    contents.querySelector("h2").focus();
    // Not a history entry: the Back button leaves the version.
    history.replaceState(null, "", link(file));
  }

  const tree = fileTree(files, link, open);
  fill(
    view.main,
    el(
      "p",
      { class: "crumbs" },
      el("a", { href: "#/skills" }, "All skills"),
      " › ",
      el("a", { href: `#${skillPath}` }, el("bdi", {}, visibleName(skill.name))),
    ),
    view.title(
      `${visibleName(skill.name)}, version ${version.version}`,
      downloadButton("Download bundle", `${path}/bundle`, {}, `${skill.name}-${version.version}.tar.gz`),
    ),
    details(skill, version),
    el("h2", { class: "above-table" }, "Frontmatter"),
    frontmatterTable(version.frontmatter),
    el("h2", { class: "above-table" }, "Files"),
    el(
      "div",
      { class: "files" },
      el("nav", { class: "card", "aria-label": "Files" }, tree.node),
      el("div", { class: "card" }, contents),
    ),
  );
  const wanted = view.query.get("path") ?? DEFAULT_FILE;
  const file = files.find((one) => one.path === wanted);
  if (file) await load(file);
  else fill(contents, emptyState("File not found", el("p", {}, "This version does not contain ", el("bdi", {}, visibleText(wanted)), ".")));
}

function details(skill, { version: number, manifest, bundle_bytes: bundleBytes }) {
  const used = usedVersion(skill);
  return el(
    "dl",
    { class: "facts card" },
    el("dt", {}, "State"),
    el(
      "dd",
      {},
      number === used ? "In use" : `Not in use (version ${used} is)`,
      number > 1 && [" · ", diffLink(`/skills/${skill.id}`, number - 1, number, `Changes since version ${number - 1}`)],
    ),
    el("dt", {}, "Contents"),
    el("dd", {}, `${pluralize(manifest.files.length, "file")}, ${formatBytes(manifest.unpacked_bytes)}`),
    el("dt", {}, "Bundle size"),
    el("dd", {}, formatBytes(bundleBytes)),
    el("dt", {}, "SHA-256"),
    el("dd", {}, el("code", {}, manifest.archive_sha256), " ", copyButton(manifest.archive_sha256, "SHA-256 of the bundle")),
  );
}

function frontmatterTable(frontmatter) {
  const columns = [
    { name: "Field", cell: ([key]) => el("bdi", {}, visibleText(key)) },
    {
      name: "Value",
      cell: ([, value]) =>
        typeof value === "string"
          ? el("span", { class: "preformatted" }, visibleLines(value))
          : el("span", { class: "preformatted mono" }, visibleLines(JSON.stringify(value, null, 2))),
    },
  ];
  return table("Frontmatter", columns, Object.entries(frontmatter));
}

/** `visibleText` would also replace the line feeds. */
function visibleLines(text) {
  return text.split("\n").map(visibleText).join("\n");
}
