// The workspace, its members and the key in use.

import { get, patch } from "../api.js";
import { copyButton } from "../clipboard.js";
import { can, whoami } from "../credential.js";
import { formDialog } from "../dialogs.js";
import { el, fill } from "../dom.js";
import { capitalize } from "../format.js";
import { emptyState, errorBox, loading, missingPermission, notice } from "../notices.js";
import { limitFields, limitText, limitValues } from "../configuration/limit_fields.js";
import { pagedTable } from "../tables.js";
import { relativeTime } from "../time_format.js";
import { costText, tokensText } from "../usage/usage_text.js";
import { userName } from "../users.js";
import { visibleName } from "../visible_text.js";
import { retentionCard } from "../workspace/retention_card.js";

const MEMBER_COLUMNS = [
  { name: "Name", cell: (member) => el("span", { class: "name" }, userName(member.user)) },
  { name: "Email", cell: (member) => member.user.primary_email ?? el("span", { class: "muted" }, "None") },
  { name: "Role", cell: (member) => el("span", { class: "tag" }, capitalize(member.role)) },
  { name: "Joined", cell: (member) => relativeTime(member.joined_at) },
  { name: "Status", cell: (member) => (member.ended_at === null ? "Active" : el("span", {}, "Left ", relativeTime(member.ended_at))) },
];

export async function show(view) {
  if (!can("workspace.read")) {
    fill(view.main, view.title("Workspace"), missingPermission("the workspace", "workspace.read"), keyCard());
    return;
  }
  const workspaceCard = el("section", { class: "card" }, loading("workspace"));
  const limitCard = el("section", { class: "card", hidden: true });
  const retention = retentionCard();
  const row = (member) => ({ class: member.ended_at === null ? null : "ended" });
  fill(
    view.main,
    view.title("Workspace"),
    el("div", { class: "cards" }, workspaceCard, limitCard, keyCard(), retention.node),
    el("h2", { class: "section" }, "Members"),
    pagedTable({ caption: "Members", columns: MEMBER_COLUMNS, path: "/members", query: { order: "asc" }, signal: view.signal, row, empty }),
    el("p", { class: "muted small-text" }, "The operator manages workspaces and members with ", el("code", {}, "qd admin"), "."),
  );
  load();

  async function load() {
    try {
      const workspace = await get("/workspace", {}, view.signal);
      fill(workspaceCard, workspaceDetails(workspace));
      drawLimit(workspace);
      retention.draw(workspace);
    } catch (error) {
      if (!view.signal.aborted) fill(workspaceCard, errorBox(error, load));
    }
  }

  function drawLimit(workspace) {
    const edit = async () => {
      const changed = await editDailyLimit(workspace);
      if (changed === null) return;
      notice("Daily limit saved.");
      drawLimit(changed);
      limitCard.querySelector("button").focus();
    };
    const button = can("key.manage") && el("button", { type: "button", class: "small", on: { click: edit } }, "Edit limit");
    fill(limitCard, limitDetails(workspace), button && el("div", { class: "buttons" }, button));
    limitCard.hidden = false;
  }
}

function limitDetails({ limits, used_today: used }) {
  return [
    el("h2", {}, "Daily limit"),
    facts([
      ["Limit", limitText(limits.day) ?? "No limit"],
      ["Tokens today", tokensText(used) ?? "None"],
      ["Cost today", costText(used) ?? "None"],
    ]),
    el("p", { class: "hint" }, "For all runs of the workspace, from midnight to midnight UTC. A run that reaches it waits in the Inbox."),
  ];
}

/** Returns the changed workspace, or null. */
function editDailyLimit({ limits }) {
  return formDialog({
    title: "Edit daily limit",
    fields: limitFields("day", "All runs of the workspace together", limits.day, "Leave a field empty for no limit."),
    confirm: "Save",
    act: (data) => patch("/workspace", { limits: { day: limitValues(data, "day") } }),
  });
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
