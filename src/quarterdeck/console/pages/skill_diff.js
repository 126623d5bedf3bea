// What changed from one version to another.

import { get } from "../api.js";
import { el, fill } from "../dom.js";
import { emptyBox, faultBox, loading } from "../notices.js";
import { changeTag, fileComparison, lineCounts, wideEnough } from "../skills/comparison.js";
import { compareForm } from "../skills/versions.js";
import { bytes, count } from "../skills/words.js";
import { table } from "../tables.js";
import { named, visible } from "../visible.js";

// Of all files together, before they are folded.
const MOST_ROWS = 4000;

export async function show(view, { id }) {
  const path = `/skills/${encodeURIComponent(id)}`;
  const skill = await get(path, {}, view.signal);
  if (view.signal.aborted) return;
  const to = numberIn(view.query, "to") ?? skill.latest_version;
  const from = numberIn(view.query, "from") ?? Math.max(1, to - 1);
  const result = el("div", {}, loading("what changed"));
  fill(
    view.main,
    view.title(skill.latest_version > 1 ? `${named(skill.name)}: version ${from} to ${to}` : named(skill.name)),
    el(
      "p",
      { class: "crumbs" },
      el("a", { href: "#/skills" }, "All skills"),
      " › ",
      el("a", { href: `#${path}` }, el("bdi", {}, named(skill.name))),
    ),
    skill.latest_version > 1 && compareForm(skill, from, to),
    result,
  );
  if (!(skill.latest_version > 1))
    return void fill(result, emptyBox("Nothing to compare yet", el("p", {}, "Push a second version first.")));
  await load();

  async function load() {
    fill(result, loading("what changed"));
    try {
      const found = await get(`${path}/diff`, { base: from, head: to }, view.signal);
      fill(result, differences(found, view.signal));
    } catch (fault) {
      if (!view.signal.aborted) fill(result, faultBox(fault, load));
    }
  }
}

function numberIn(query, name) {
  const given = query.get(name) ?? "";
  return /^[0-9]{1,10}$/.test(given) ? Number(given) : null;
}

function differences(found, signal) {
  if (found.files.length === 0) return emptyBox("No difference", el("p", {}, "Both versions hold the same files."));
  const budget = { rows: MOST_ROWS };
  const compared = found.files.map((file) => fileComparison(file, found, budget));
  wideEnough.addEventListener("change", () => compared.forEach((one) => one.draw()), { signal });
  const goTo = (file) => {
    const { node } = compared[found.files.indexOf(file)];
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
          { class: "plain", type: "button", on: { click: () => goTo(file) } },
          el("bdi", {}, visible(file.path)),
        ),
    },
    { name: "Change", cell: changeTag },
    { name: "Lines", cell: lineCounts },
    { name: "Size before", cell: (file) => size(file.base_bytes) },
    { name: "Size after", cell: (file) => size(file.head_bytes) },
  ];
  return [
    el("p", { role: "status" }, summary(found)),
    table("Files that differ", columns, found.files),
    found.truncated &&
      el("p", { class: "quiet" }, "More files differ than are listed. Download both bundles to compare them whole."),
    compared.map((one) => one.node),
  ];
}

function size(found) {
  return found === null ? el("span", { class: "quiet" }, "none") : bytes(found);
}

function summary({ files }) {
  const of = (change) => files.filter((file) => file.change === change).length;
  const changes = `${of("added")} added, ${of("removed")} removed, ${of("changed")} changed`;
  return `${count(files.length, "file")} differ${files.length === 1 ? "s" : ""}: ${changes}.`;
}
