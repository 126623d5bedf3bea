// All skills, and the way to a new one: by a name, or by what it holds.

import { post } from "../api.js";
import { can } from "../credential.js";
import { field, formDialog } from "../dialogs.js";
import { el, fill } from "../dom.js";
import { emptyBox, lackingBox } from "../notices.js";
import { nameOf } from "../people.js";
import { go, keepQuery } from "../router.js";
import { dropZone, handOver } from "../skills/choosing.js";
import { bytes, count, usedVersion } from "../skills/words.js";
import { pagedTable } from "../tables.js";
import { when } from "../times.js";
import { named, visible } from "../visible.js";

const COLUMNS = [
  { name: "Name", cell: (skill) => el("a", { href: `#/skills/${skill.id}` }, el("bdi", {}, named(skill.name))) },
  { name: "Sessions use", cell: used },
  { name: "Latest version", cell: (skill) => skill.latest_version ?? el("span", { class: "quiet" }, "none yet") },
  { name: "Created by", cell: (skill) => nameOf(skill.created_by) },
  { name: "Created", class: "short", cell: (skill) => when(skill.created_at) },
];

export async function show(view) {
  const mayChange = can("skill.manage");
  if (!can("workspace.read")) {
    fill(view.main, view.title("Skills"), lackingBox("the skills", "workspace.read"));
    return;
  }
  const list = el("div", {});
  const archived = el("input", { type: "checkbox", checked: view.query.get("archived") === "true" });
  const create = el(
    "button",
    { class: "primary", type: "button", disabled: !mayChange, on: { click: () => newSkill("", null) } },
    "New skill",
  );

  function fillList() {
    const query = { archived: archived.checked };
    keepQuery(archived.checked ? { archived: true } : {});
    fill(
      list,
      pagedTable({
        caption: "Skills",
        columns: COLUMNS,
        path: "/skills",
        query,
        signal: view.signal,
        empty: () => empty(archived.checked),
      }),
    );
  }

  archived.addEventListener("change", fillList);
  fill(
    view.main,
    view.title("Skills", create),
    !mayChange &&
      el(
        "p",
        { class: "quiet" },
        "This key may look at skills. Changing them needs the permission ",
        el("code", {}, "skill.manage"),
        ".",
      ),
    mayChange &&
      dropZone({
        heading: "Make a skill from what it holds",
        signal: view.signal,
        chosen: (bundle) => newSkill(bundle.suggestedName, bundle),
      }),
    el("div", { class: "toolbar" }, el("label", { class: "choice" }, archived, "Show archived skills")),
    list,
  );
  fillList();
}

function used(skill) {
  if (usedVersion(skill) === null) return el("span", { class: "quiet" }, "nothing yet");
  return skill.default_version === null
    ? `version ${skill.latest_version}, the latest`
    : `version ${skill.default_version}, set`;
}

function empty(archived) {
  if (archived)
    return emptyBox(
      "Nothing is archived",
      el("p", {}, "A skill that no further session should use is archived on its page."),
    );
  return emptyBox(
    "No skills yet",
    el(
      "p",
      {},
      "A skill is a folder with a SKILL.md: instructions that agents read when they need them, and files beside it.",
    ),
    el("p", {}, "Drop one above, or type ", el("code", {}, "qd skills init"), " in a terminal to begin one."),
  );
}

/** With a bundle, it becomes the first version. */
async function newSkill(name, bundle) {
  const input = el("input", {
    name: "name",
    required: true,
    maxlength: 200,
    autocomplete: "off",
    value: name.slice(0, 200),
  });
  const made = await formDialog({
    title: "New skill",
    fields: [
      bundle &&
        el(
          "p",
          {},
          el("bdi", {}, visible(bundle.from)),
          ": ",
          bundle.files ? `${count(bundle.files.length, "file")}, ${bytes(bundle.bytes)}` : bytes(bundle.bytes),
          ", to be its first version.",
        ),
      field("Name", input, "For people. It can be changed."),
    ],
    confirm: bundle ? "Create and push" : "Create",
    act: (data) => post("/skills", { name: data.get("name").trim() }),
  });
  if (made === null) return;
  if (bundle) handOver(made.id, bundle);
  go(`/skills/${made.id}`);
}
