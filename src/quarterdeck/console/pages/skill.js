// A skill: its versions, which of them is used, and a place to push the next.

import { get, patch } from "../api.js";
import { copyButton } from "../copying.js";
import { can } from "../credential.js";
import { el, fill } from "../dom.js";
import { emptyBox, notice } from "../notices.js";
import { nameOf } from "../people.js";
import { askArchive, askName, askUse } from "../skills/changing.js";
import { dropZone, takeOver } from "../skills/choosing.js";
import { pushPanel } from "../skills/pushing.js";
import { arrived, compareForm, versionColumns } from "../skills/versions.js";
import { usedVersion } from "../skills/words.js";
import { pagedTable } from "../tables.js";
import { exact, when } from "../times.js";
import { named } from "../visible.js";

export async function show(view, { id }) {
  const path = `/skills/${encodeURIComponent(id)}`;
  let skill = await get(path, {}, view.signal);
  if (view.signal.aborted) return;
  const mayChange = can("skill.manage");
  const push = el("div", {});
  const use = mayChange ? (version) => asked(askUse(skill, version, change)) : null;

  /** Shows what was changed. `focused` finds where the focus goes, since the button that was pressed is gone. */
  function draw(focused = "h1") {
    fill(
      view.main,
      head(),
      push,
      facts(skill, use),
      skill.latest_version > 1 && compareForm(skill),
      el("h2", { class: "above-table" }, "Versions"),
      versions(),
    );
    view.main.querySelector(focused)?.focus();
  }

  function head() {
    const button = (text, act) => el("button", { type: "button", on: { click: act } }, text);
    const rename = () => asked(askName(skill, change));
    const archive = () => asked(askArchive(skill, change));
    const actions = [button("Rename", rename), button(skill.archived_at ? "Bring back" : "Archive", archive)];
    return [
      view.title(named(skill.name), mayChange && el("div", { class: "buttons" }, actions)),
      el("p", { class: "crumbs" }, el("a", { href: "#/skills" }, "All skills")),
    ];
  }

  async function change(body, said) {
    const wasArchived = skill.archived_at;
    skill = await patch(path, body, view.signal);
    // A bundle that waits to be pushed goes on waiting, unless it no longer can be.
    if (wasArchived !== skill.archived_at) offer();
    notice(said);
  }

  async function asked(answer) {
    if ((await answer) !== null && !view.signal.aborted) draw();
  }

  function offer() {
    const archived = () => `Archived on ${exact(skill.archived_at)}. It takes no versions until it is brought back.`;
    const chosen = (bundle) => begin(bundle, false);
    if (skill.archived_at) fill(push, el("p", { class: "card" }, archived()));
    else fill(push, mayChange && dropZone({ heading: "Push a version", signal: view.signal, chosen }));
  }

  function begin(bundle, atOnce) {
    const dropped = () => {
      offer();
      push.querySelector("button").focus();
    };
    fill(push, pushPanel({ skill, bundle, atOnce, signal: view.signal, pushed, dropped }));
  }

  async function pushed(version) {
    skill = await get(path, {}, view.signal);
    offer();
    push.prepend(arrived(skill, version));
    draw(".arrived");
  }

  function versions() {
    const todo = mayChange
      ? "Push the first: until then no session gets anything from this skill."
      : "Somebody with the permission skill.manage can push one.";
    const empty = () => emptyBox("No version yet", el("p", {}, todo));
    const columns = versionColumns(skill, use);
    return pagedTable({ caption: "Versions", columns, path: `${path}/versions`, signal: view.signal, empty });
  }

  offer();
  draw();
  const bundle = takeOver(skill.id);
  if (bundle && mayChange) begin(bundle, true);
}

function facts(skill, use) {
  const isSet = skill.default_version !== null;
  const used = usedVersion(skill);
  const follow = () =>
    el("button", { class: "small", type: "button", on: { click: () => use(null) } }, "Follow the latest");
  return el(
    "dl",
    { class: "facts card" },
    el("dt", {}, "Sessions use"),
    el(
      "dd",
      {},
      used === null ? "nothing yet" : `version ${used}, ${isSet ? "which was set" : "the latest"}`,
      used !== null && el("span", { class: "hint-line" }, "Those that pin a version keep theirs."),
      use && isSet && follow(),
    ),
    el("dt", {}, "Created"),
    el("dd", {}, when(skill.created_at), ` by ${nameOf(skill.created_by)}`),
    el("dt", {}, "Id"),
    el("dd", {}, el("code", {}, skill.id), " ", copyButton(skill.id, "the id of the skill")),
  );
}
