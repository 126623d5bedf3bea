// One skill: its versions and the form to push a new one.

import { get, patch, remove } from "../api.js";
import { copyButton } from "../clipboard.js";
import { can } from "../credential.js";
import { el, fill } from "../dom.js";
import { emptyState, notice } from "../notices.js";
import { dropZone } from "../skills/drop_zone.js";
import { deleteDialog } from "../skills/delete_dialog.js";
import { takePendingBundle } from "../skills/pending_bundle.js";
import { pushPanel } from "../skills/push_panel.js";
import { pushResult, versionColumns } from "../skills/versions.js";
import { navigate } from "../router.js";
import { pagedTable } from "../tables.js";
import { formatDateTime, relativeTime } from "../time_format.js";
import { userName } from "../users.js";
import { archiveDialog, renameDialog, useVersionDialog } from "../versioned_dialogs.js";
import { compareForm, versionChoice } from "../versions.js";
import { visibleName, visibleText } from "../visible_text.js";

export async function show(view, { id }) {
  const path = `/skills/${encodeURIComponent(id)}`;
  let skill = await get(path, {}, view.signal);
  if (view.signal.aborted) return;
  const canChange = can("skill.manage");
  const push = el("div", {});
  const use = canChange ? (version) => redrawAfter(useVersionDialog(skill, version, change)) : null;

  /** `focused`: selector of the element that receives the focus, because the pressed button is replaced. */
  function draw(focused = "h1") {
    fill(
      view.main,
      header(),
      push,
      details(skill, use),
      el("div", { class: "section-head" }, el("h2", {}, "Versions"), skill.latest_version > 1 && compareForm(path, skill)),
      versions(),
    );
    view.main.querySelector(focused)?.focus();
  }

  function header() {
    const button = (text, act) => el("button", { type: "button", on: { click: act } }, text);
    const rename = () => redrawAfter(renameDialog("skill", skill, change));
    const archive = () => redrawAfter(archiveDialog("skill", skill, change));
    const actions = [
      button("Rename", rename),
      button(skill.archived_at ? "Unarchive" : "Archive", archive),
      el("button", { type: "button", class: "danger-text", on: { click: destroy } }, "Delete"),
    ];
    return [
      el("p", { class: "crumbs" }, el("a", { href: "#/skills" }, "All skills")),
      view.title(visibleName(skill.name), canChange && el("div", { class: "buttons" }, actions)),
      skill.description && el("p", { class: "skill-description" }, el("bdi", {}, visibleText(skill.description))),
    ];
  }

  async function destroy() {
    if ((await deleteDialog(skill, () => remove(path))) === null) return;
    notice(`${visibleName(skill.name)} was deleted.`);
    navigate("/skills");
  }

  async function change(body, message) {
    const wasArchived = skill.archived_at;
    skill = await patch(path, body, view.signal);
    // Other changes keep a bundle that is about to be pushed.
    if (wasArchived !== skill.archived_at) showDropZone();
    notice(message);
  }

  async function redrawAfter(dialog) {
    if ((await dialog) !== null && !view.signal.aborted) draw();
  }

  function showDropZone() {
    if (skill.archived_at) {
      const text = `Archived on ${formatDateTime(skill.archived_at)}. Unarchive this skill to push versions.`;
      fill(push, el("p", { class: "card" }, text));
    } else {
      const onBundle = (bundle) => showPushPanel(bundle, false);
      fill(push, canChange && dropZone({ heading: "Push a version", signal: view.signal, onBundle }));
    }
  }

  function showPushPanel(bundle, autoStart) {
    const onCancel = () => {
      showDropZone();
      push.querySelector("button").focus();
    };
    fill(push, pushPanel({ skill, bundle, autoStart, signal: view.signal, onPushed, onCancel }));
  }

  async function onPushed(version) {
    skill = await get(path, {}, view.signal);
    showDropZone();
    push.prepend(pushResult(skill, version));
    draw(".push-result");
  }

  function versions() {
    const hint = canChange ? "Push a version so that sessions can use this skill." : "Pushing a version requires the permission skill.manage.";
    const empty = () => emptyState("No versions", el("p", {}, hint));
    const columns = versionColumns(skill, use);
    return pagedTable({ caption: "Versions", columns, path: `${path}/versions`, signal: view.signal, empty });
  }

  showDropZone();
  draw();
  const bundle = takePendingBundle(skill.id);
  if (bundle && canChange) showPushPanel(bundle, true);
}

function details(skill, use) {
  const isPinned = skill.default_version !== null;
  const useLatest = () => use(null);
  return el(
    "dl",
    { class: "facts card" },
    el("dt", {}, "Version in use"),
    el(
      "dd",
      {},
      versionInUse(skill),
      skill.latest_version !== null && el("span", { class: "hint-line" }, "Sessions can pin their own version."),
      use && isPinned && el("button", { class: "small", type: "button", on: { click: useLatest } }, "Use latest"),
    ),
    el("dt", {}, "Created"),
    el("dd", {}, relativeTime(skill.created_at), ` by ${userName(skill.created_by)}`),
    el("dt", {}, "ID"),
    el("dd", {}, el("code", {}, skill.id), " ", copyButton(skill.id, "skill ID")),
  );
}

function versionInUse(skill) {
  const now = skill.latest_version !== null && skill.default_version === null ? `, now version ${skill.latest_version}` : "";
  return (versionChoice(skill) ?? "No versions") + now;
}
