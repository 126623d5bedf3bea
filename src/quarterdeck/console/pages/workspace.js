// The workspace, its members and the key in use.

import { get } from "../api.js";
import { copyButton } from "../clipboard.js";
import { can, whoami } from "../credential.js";
import { el, fill } from "../dom.js";
import { capitalize } from "../format.js";
import { emptyState, errorBox, loading, missingPermission } from "../notices.js";
import { pagedTable } from "../tables.js";
import { relativeTime } from "../time_format.js";
import { userName } from "../users.js";
import { visibleName } from "../visible_text.js";

const MEMBER_COLUMNS = [
  { name: "Name", cell: (member) => el("span", { class: "name" }, userName(member.user)) },
  { name: "Email", cell: (member) => member.user.primary_email ?? el("span", { class: "muted" }, "None") },
  { name: "Role", cell: (member) => el("span", { class: "tag" }, capitalize(member.role)) },
  { name: "Joined", cell: (member) => relativeTime(member.joined_at) },
  { name: "Left", cell: (member) => relativeTime(member.ended_at, "Active") },
];

export async function show(view) {
  if (!can("workspace.read")) {
    fill(view.main, view.title("Workspace"), missingPermission("the workspace", "workspace.read"), keyCard());
    return;
  }
  const workspaceCard = el("section", { class: "card" }, loading("workspace"));
  const row = (member) => ({ class: member.ended_at === null ? null : "ended" });
  fill(
    view.main,
    view.title("Workspace"),
    el("div", { class: "cards" }, workspaceCard, keyCard()),
    el("h2", { class: "section" }, "Members"),
    pagedTable({ caption: "Members", columns: MEMBER_COLUMNS, path: "/members", query: { order: "asc" }, signal: view.signal, row, empty }),
    el("p", { class: "muted small-text" }, "The operator manages workspaces and members with ", el("code", {}, "qd admin"), "."),
  );
  load();

  async function load() {
    try {
      fill(workspaceCard, workspaceDetails(await get("/workspace", {}, view.signal)));
    } catch (error) {
      if (!view.signal.aborted) fill(workspaceCard, errorBox(error, load));
    }
  }
}

function workspaceDetails(workspace) {
  return [
    el("h2", {}, visibleName(workspace.name)),
    facts([
      ["ID", [el("code", {}, workspace.id), " ", copyButton(workspace.id, "workspace ID")]],
      ["Owner", userName(workspace.owner)],
      ["Created", relativeTime(workspace.created_at)],
      ["Maximum key lifetime", workspace.max_key_days === null ? "None" : `${workspace.max_key_days} days`],
    ]),
  ];
}

function keyCard() {
  const { label, prefix, permissions, expires_at: expiresAt, user } = whoami();
  return el(
    "section",
    { class: "card" },
    el("h2", {}, "Your key"),
    facts([
      ["Key", [el("strong", {}, visibleName(label)), " ", el("code", {}, `${prefix}…`)]],
      ["Created by", userName(user)],
      ["Expires", relativeTime(expiresAt)],
      ["Permissions", el("ul", { class: "tags" }, permissions.map((name) => el("li", { class: "tag" }, name)))],
    ]),
  );
}

function facts(pairs) {
  return el("dl", { class: "facts" }, pairs.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function empty() {
  return emptyState("No members", el("p", {}, "The operator adds members with ", el("code", {}, "qd admin add-member"), "."));
}
