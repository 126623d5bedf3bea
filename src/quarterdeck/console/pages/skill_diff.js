// The differences between two versions of a skill.

import { get } from "../api.js";
import { el, fill } from "../dom.js";
import { formatBytes, pluralize } from "../format.js";
import { emptyState, errorBox, loading } from "../notices.js";
import { changeTag, fileDiff, lineCounts, wideScreen } from "../skills/file_diff.js";
import { table } from "../tables.js";
import { comparedVersions, compareForm } from "../versions.js";
import { visibleName, visibleText } from "../visible_text.js";

// Rows of all files that are rendered initially. Further files are collapsed.
const MAX_ROWS = 4000;

export async function show(view, { id }) {
  const path = `/skills/${encodeURIComponent(id)}`;
  const skill = await get(path, {}, view.signal);
  if (view.signal.aborted) return;
  const hasDiff = skill.latest_version > 1;
  const { from, to } = comparedVersions(view.query, skill);
  const result = el("div", {});
  fill(
    view.main,
    el(
      "p",
      { class: "crumbs" },
      el("a", { href: "#/skills" }, "All skills"),
      " › ",
      el("a", { href: `#${path}` }, el("bdi", {}, visibleName(skill.name))),
    ),
    view.title(hasDiff ? `${visibleName(skill.name)}: version ${from} to ${to}` : visibleName(skill.name)),
    hasDiff && compareForm(path, skill, from, to),
    result,
  );
  if (hasDiff) await load();
  else fill(result, emptyState("Nothing to compare", el("p", {}, "This skill has fewer than two versions.")));

  async function load() {
    fill(result, loading("changes"));
    try {
      const diff = await get(`${path}/diff`, { base: from, head: to }, view.signal);
      fill(result, differences(diff, view.signal));
    } catch (error) {
      if (!view.signal.aborted) fill(result, errorBox(error, load));
    }
  }
}

function differences(diff, signal) {
  if (diff.files.length === 0) return emptyState("No differences", el("p", {}, "Both versions contain the same files."));
  const budget = { rows: MAX_ROWS };
  const fileDiffs = diff.files.map((file) => fileDiff(file, diff, budget));
  wideScreen.addEventListener("change", () => fileDiffs.forEach((one) => one.draw()), { signal });
  const scrollTo = (file) => {
    const { node } = fileDiffs[diff.files.indexOf(file)];
    node.open = true;
    node.scrollIntoView();
    node.querySelector("summary").focus({ preventScroll: true });
  };
  const columns = [
    {
      name: "File",
      cell: (file) =>
        el(
          "button",
          { class: "plain", type: "button", on: { click: () => scrollTo(file) } },
          el("bdi", {}, visibleText(file.path)),
        ),
    },
    { name: "Change", cell: changeTag },
    { name: "Lines", cell: lineCounts },
    { name: "Size before", cell: (file) => size(file.base_bytes) },
    { name: "Size after", cell: (file) => size(file.head_bytes) },
  ];
  return [
    el("p", { role: "status" }, summary(diff)),
    table("Changed files", columns, diff.files),
    diff.truncated && el("p", { class: "muted" }, "Too many files to list all of them. Download both bundles to compare them."),
    fileDiffs.map((one) => one.node),
  ];
}

function size(bytes) {
  return bytes === null ? el("span", { class: "muted" }, "–") : formatBytes(bytes);
}

function summary({ files }) {
  const count = (change) => files.filter((file) => file.change === change).length;
  return `${pluralize(files.length, "file")}: ${count("added")} added, ${count("removed")} removed, ${count("changed")} changed`;
}
