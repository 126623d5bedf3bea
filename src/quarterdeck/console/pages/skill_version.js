// A version: what its SKILL.md says of it, and its files.

import { get } from "../api.js";
import { copyButton } from "../copying.js";
import { el, fill } from "../dom.js";
import { emptyBox } from "../notices.js";
import { downloadButton, showFile } from "../skills/contents.js";
import { fileTree } from "../skills/tree.js";
import { comparison } from "../skills/versions.js";
import { bytes, count, usedVersion } from "../skills/words.js";
import { table } from "../tables.js";
import { named, visible } from "../visible.js";

const FIRST = "SKILL.md";

export async function show(view, { id, version: number }) {
  const skillPath = `/skills/${encodeURIComponent(id)}`;
  const path = `${skillPath}/versions/${encodeURIComponent(number)}`;
  const [skill, version] = await Promise.all([get(skillPath, {}, view.signal), get(path, {}, view.signal)]);
  if (view.signal.aborted) return;
  const { files } = version.manifest;
  const contents = el("div", { class: "contents" });
  const link = (file) => `#${path}?path=${encodeURIComponent(file.path)}`;
  let reading = new AbortController();

  async function open(file) {
    reading.abort();
    reading = new AbortController();
    tree.mark(file.path);
    const shown = showFile(contents, path, file, AbortSignal.any([view.signal, reading.signal]));
    contents.querySelector("h2").focus();
    // A file has an address, and looking through several leaves no trail.
    history.replaceState(null, "", link(file));
    await shown;
  }

  const tree = fileTree(files, link, open);
  fill(
    view.main,
    view.title(
      `${named(skill.name)}, version ${version.version}`,
      downloadButton("Download bundle", `${path}/bundle`, {}, `${skill.name}-${version.version}.tar.gz`),
    ),
    el(
      "p",
      { class: "crumbs" },
      el("a", { href: "#/skills" }, "All skills"),
      " › ",
      el("a", { href: `#${skillPath}` }, el("bdi", {}, named(skill.name))),
    ),
    facts(skill, version),
    el("h2", { class: "above-table" }, "Frontmatter"),
    frontmatter(version.frontmatter),
    el("h2", { class: "above-table" }, "Files"),
    el(
      "div",
      { class: "files" },
      el("nav", { class: "card", "aria-label": "Files of the version" }, tree.node),
      el("div", { class: "card" }, contents),
    ),
  );
  const asked = view.query.get("path") ?? FIRST;
  const first = files.find((file) => file.path === asked);
  if (!first)
    return void fill(
      contents,
      emptyBox("No such file", el("p", {}, "This version has no ", el("bdi", {}, visible(asked)), ".")),
    );
  tree.mark(first.path);
  await showFile(contents, path, first, AbortSignal.any([view.signal, reading.signal]));
}

function facts(skill, version) {
  const number = version.version;
  const { manifest } = version;
  return el(
    "dl",
    { class: "facts card" },
    el("dt", {}, "State"),
    el(
      "dd",
      {},
      number === usedVersion(skill) ? "sessions use it" : `sessions use version ${usedVersion(skill)}`,
      number > 1 && [" · ", comparison(skill, number - 1, number, `what changed since version ${number - 1}`)],
    ),
    el("dt", {}, "Holds"),
    el("dd", {}, `${count(manifest.files.length, "file")}, ${bytes(manifest.unpacked_bytes)}`),
    el("dt", {}, "Bundle"),
    el("dd", {}, bytes(version.bundle_bytes)),
    el("dt", {}, "SHA-256"),
    el(
      "dd",
      {},
      el("code", {}, manifest.archive_sha256),
      " ",
      copyButton(manifest.archive_sha256, "the SHA-256 of the bundle"),
    ),
  );
}

function frontmatter(found) {
  const columns = [
    { name: "Field", cell: ([key]) => el("bdi", {}, visible(key)) },
    {
      name: "Value",
      cell: ([, value]) =>
        typeof value === "string"
          ? el("span", { class: "written" }, written(value))
          : el("span", { class: "written mono" }, written(JSON.stringify(value, null, 2))),
    },
  ];
  return table("Frontmatter", columns, Object.entries(found));
}

/** Its own line feeds stay what they are. */
function written(text) {
  return text.split("\n").map(visible).join("\n");
}
