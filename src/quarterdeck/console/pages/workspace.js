// The workspace, its limits and the access of the user.

import { get, patch } from "../api.js";
import { copyButton } from "../clipboard.js";
import { can, profile, whoami } from "../credential.js";
import { formDialog } from "../dialogs.js";
import { el, fill } from "../dom.js";
import { capitalize } from "../format.js";
import { errorBox, loading, missingPermission, notice } from "../notices.js";
import { limitFields, limitText, limitValues } from "../configuration/limit_fields.js";
import { relativeTime } from "../time_format.js";
import { costText, tokensText } from "../usage/usage_text.js";
import { userName } from "../users.js";
import { visibleName } from "../visible_text.js";
import { retentionCard } from "../workspace/retention_card.js";

export async function show(view) {
  if (!can("workspace.read")) {
    fill(view.main, view.title("Workspace"), missingPermission("the workspace", "workspace.read"), accessCard());
    return;
  }
  const workspaceCard = el("section", { class: "card" }, loading("workspace"));
  const limitCard = el("section", { class: "card", hidden: true });
  const retention = retentionCard();
  fill(
    view.main,
    view.title("Workspace"),
    el("div", { class: "cards" }, workspaceCard, limitCard, accessCard(), retention.node),
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

function accessCard() {
  const { label, prefix, role, permissions, expires_at: expiresAt, user } = whoami();
  const shownPermissions = ["Permissions", el("ul", { class: "tags" }, permissions.map((name) => el("li", { class: "tag" }, name)))];
  if (profile() !== null) {
    return el(
      "section",
      { class: "card" },
      el("h2", {}, "Your access"),
      facts([["Name", userName(user)], ["Role", capitalize(role)], shownPermissions]),
    );
  }
  return el(
    "section",
    { class: "card" },
    el("h2", {}, "Your key"),
    facts([
      ["Key", [el("strong", {}, visibleName(label)), " ", el("code", {}, `${prefix}…`)]],
      ["Created by", userName(user)],
      ["Expires", relativeTime(expiresAt)],
      shownPermissions,
    ]),
  );
}

function facts(pairs) {
  return el("dl", { class: "facts" }, pairs.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}
