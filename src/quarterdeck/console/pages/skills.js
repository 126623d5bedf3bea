// The list of skills.

import { listAll, post } from "../api.js";
import { can, reasonAgainst } from "../credential.js";
import { field, formDialog } from "../dialogs.js";
import { el, fill } from "../dom.js";
import { formatBytes, pluralize } from "../format.js";
import { emptyState, errorBox, missingPermission } from "../notices.js";
import { navigate, replaceQuery } from "../router.js";
import { dropZone } from "../skills/drop_zone.js";
import { setPendingBundle } from "../skills/pending_bundle.js";
import { ignoreFilesCaution } from "../skills/push_panel.js";
import { pagedTable, table } from "../tables.js";
import { relativeTime } from "../time_format.js";
import { userName } from "../users.js";
import { versionChoice } from "../versions.js";
import { visibleName, visibleText } from "../visible_text.js";

const SEARCH_DELAY_MS = 250;
const NO_VERSIONS = () => el("span", { class: "muted" }, "No versions");
const COLUMNS = [
  { name: "Name", class: "skill-name", cell: (skill) => el("a", { href: `#/skills/${skill.id}` }, el("bdi", {}, visibleName(skill.name))) },
  { name: "Description", cell: description },
  { name: "Version in use", class: "short", cell: (skill) => versionChoice(skill) ?? NO_VERSIONS() },
  { name: "Latest", class: "short", cell: (skill) => skill.latest_version ?? "–" },
  { name: "Created by", class: "short", cell: (skill) => userName(skill.created_by) },
  { name: "Created", class: "short", cell: (skill) => relativeTime(skill.created_at) },
];

export async function show(view) {
  const canChange = can("skill.manage");
  if (!can("workspace.read")) {
    fill(view.main, view.title("Skills"), missingPermission("skills", "workspace.read"));
    return;
  }
  const list = el("div", {});
  const archived = el("input", { type: "checkbox", role: "switch", checked: view.query.get("archived") === "true", on: { change: load } });
  const search = el("input", {
    type: "search", maxlength: 200, value: view.query.get("search") ?? "", "aria-label": "Search skills", placeholder: "Search skills",
    on: { input: onInput },
  });
  let timer = null;
  let lastSearch = 0;
  const create = el(
    "button",
    { class: "primary", type: "button", disabled: !canChange, on: { click: () => createSkill("", null) } },
    "New skill",
  );

  function onInput() {
    clearTimeout(timer);
    timer = setTimeout(load, SEARCH_DELAY_MS);
  }

  function load() {
    if (view.signal.aborted) return;
    lastSearch += 1;
    const text = search.value.trim();
    const query = { archived: archived.checked };
    replaceQuery({ ...(text !== "" && { search: text }), ...(query.archived && { archived: true }) });
    if (text !== "") {
      showMatches(text.toLowerCase(), query);
      return;
    }
    const empty = () => (query.archived ? emptyState("No archived skills") : noSkills());
    fill(list, pagedTable({ caption: "Skills", columns: COLUMNS, path: "/skills", query, signal: view.signal, empty }));
  }

  /** The API has no search for skills, so all of them are loaded. */
  async function showMatches(text, query) {
    const current = lastSearch;
    let content;
    try {
      const skills = await Array.fromAsync(listAll("/skills", query, view.signal));
      const found = skills.filter((skill) => `${skill.name}\n${skill.description ?? ""}`.toLowerCase().includes(text));
      content = found.length > 0 ? table("Skills", COLUMNS, found) : emptyState("No matching skills");
    } catch (error) {
      content = errorBox(error, load);
    }
    if (!view.signal.aborted && current === lastSearch) fill(list, content);
  }

  /** A bundle with the name of an active skill is offered as its next version. */
  async function onBundle(bundle) {
    const existing = await findByName(bundle.suggestedName, view.signal);
    if (view.signal.aborted) return;
    if (existing === null) createSkill(bundle.suggestedName, bundle);
    else pushOrCreate(existing, bundle);
  }

  fill(
    view.main,
    view.title("Skills", create),
    canChange
      ? dropZone({ heading: "Upload a skill", signal: view.signal, onBundle })
      : el("p", { class: "muted" }, `Read-only: ${reasonAgainst("skill.manage")}`),
    el("div", { class: "toolbar" }, el("div", { class: "field" }, search), el("label", { class: "choice switch" }, archived, "Show archived")),
    list,
  );
  load();
  // After the heading has received the focus, to which the dialog returns it.
  if (view.query.has("new") && canChange) setTimeout(() => createSkill("", null));
}

function description({ description: text }) {
  return text ? el("bdi", { class: "clamped" }, visibleText(text)) : el("span", { class: "muted" }, "–");
}

function noSkills() {
  return emptyState(
    "No skills yet",
    el("p", {}, "A skill is a folder with a SKILL.md: instructions and files that agents use when they need them."),
    el("p", {}, "Upload one above, or run ", el("code", {}, "qd skills init"), " to create one from a template."),
  );
}

/** With a bundle, the skill is created and the bundle is pushed as its first version. */
async function createSkill(suggestedName, bundle) {
  const input = el("input", { name: "name", required: true, maxlength: 200, autocomplete: "off", value: suggestedName.slice(0, 200) });
  const created = await formDialog({
    title: "New skill",
    fields: [bundle && bundleSummary(bundle), field("Name", input, "You can change it later.")],
    confirm: bundle ? "Create and push" : "Create",
    act: (data) => post("/skills", { name: data.get("name").trim() }),
  });
  if (created === null) return;
  if (bundle) setPendingBundle(created.id, bundle);
  navigate(`/skills/${created.id}`);
}

async function findByName(name, signal) {
  for await (const skill of listAll("/skills", {}, signal)) if (skill.name === name) return skill;
  return null;
}

async function pushOrCreate(existing, bundle) {
  const name = visibleName(existing.name);
  const radio = (value, checked) => el("input", { type: "radio", name: "target", value, checked, on: { change: toggleName } });
  const input = el("input", { name: "name", maxlength: 200, autocomplete: "off" });
  const nameField = el("div", { hidden: true }, field("Name", input));
  function toggleName(event) {
    nameField.hidden = event.currentTarget.value !== "new";
    input.required = !nameField.hidden;
  }
  const target = await formDialog({
    title: `“${name}” already exists`,
    fields: [
      bundleSummary(bundle),
      el(
        "fieldset",
        {},
        el("legend", { class: "visually-hidden" }, "Push to"),
        el("label", { class: "choice" }, radio("existing", true), `Push as version ${(existing.latest_version ?? 0) + 1} of ${name}`),
        el("label", { class: "choice" }, radio("new", false), "Create another skill"),
      ),
      nameField,
    ],
    confirm: "Push",
    act: (data) => (data.get("target") === "existing" ? existing : post("/skills", { name: data.get("name").trim() })),
  });
  if (target === null) return;
  setPendingBundle(target.id, bundle);
  navigate(`/skills/${target.id}`);
}

function bundleSummary({ source, files, bytes, skipped, hasIgnoreFiles }) {
  const count = files ? `${pluralize(files.length, "file")}, ` : "";
  return [
    el("p", {}, el("bdi", {}, visibleText(source)), `: ${count}${formatBytes(bytes)}`, skipped > 0 && ` (${skipped.toLocaleString("en")} skipped)`),
    hasIgnoreFiles && ignoreFilesCaution(),
  ];
}
