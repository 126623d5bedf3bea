// The members of the workspace and open invitations.

import { listAll } from "../api.js";
import { can, profile, setCaller, whoami } from "../credential.js";
import { el, fill } from "../dom.js";
import { errorBox, loading, missingPermission } from "../notices.js";
import { avatar } from "../people/avatar.js";
import { changeRole, invitePerson, leaveWorkspace, removeMember, withdrawInvitation } from "../people/member_dialogs.js";
import { roleTag } from "../people/roles.js";
import { replaceQuery } from "../router.js";
import { table } from "../tables.js";
import { relativeTime } from "../time_format.js";
import { userName } from "../users.js";
import { visibleName, visibleText } from "../visible_text.js";

export async function show(view) {
  const mayManage = can("member.manage");
  const inviteButton = mayManage && el("button", { class: "primary", type: "button", on: { click: invite } }, "Invite");
  const head = view.title("Members", inviteButton);
  if (!can("workspace.read")) {
    fill(view.main, head, missingPermission("the members", "workspace.read"));
    return;
  }
  const members = el("div", { class: "people" }, loading("members"));
  const invitations = el("section", { class: "people", hidden: true });
  const former = el("section", { class: "people", hidden: true });
  const hint = mayManage ? "Invite people by a link, and choose what they may do with their role." : "Admins and owners invite people and change roles.";
  fill(view.main, head, el("p", { class: "muted" }, hint), members, invitations, former);
  drawMembers();
  drawInvitations();
  if (view.query.has("new") && mayManage) {
    replaceQuery({});
    // After the heading has received the focus, to which the dialog returns it.
    setTimeout(invite);
  }

  async function drawMembers() {
    try {
      const all = await Array.fromAsync(listAll("/members", { order: "asc" }, view.signal));
      const current = all.filter((member) => member.ended_at === null);
      const left = all.filter((member) => member.ended_at !== null);
      const columns = [...MEMBER_COLUMNS, { name: "Joined", class: "short", cell: (member) => relativeTime(member.joined_at) }];
      if (mayManage || profile() !== null) columns.push({ name: "Actions", class: "actions", cell: actions });
      fill(members, table("Members", columns, current, rowAttributes));
      const formerColumns = [...MEMBER_COLUMNS, { name: "Left", class: "short", cell: (member) => relativeTime(member.ended_at) }];
      fill(former, el("h2", { class: "section" }, "Former members"), table("Former members", formerColumns, left, () => ({ class: "ended" })));
      former.hidden = left.length === 0;
    } catch (error) {
      if (!view.signal.aborted) fill(members, errorBox(error, drawMembers));
    }
  }

  async function drawInvitations() {
    try {
      const all = await Array.fromAsync(listAll("/invitations", {}, view.signal));
      const open = all.filter((one) => one.accepted_at === null && one.withdrawn_at === null);
      const columns = [...INVITATION_COLUMNS];
      if (mayManage) columns.push({ name: "Actions", class: "actions", cell: (one) => actionButton("Revoke", one.email, () => withdraw(one)) });
      fill(invitations, el("h2", { class: "section" }, "Invitations"), table("Invitations", columns, open, invitationAttributes));
      invitations.hidden = open.length === 0;
    } catch (error) {
      if (!view.signal.aborted) fill(invitations, errorBox(error, drawInvitations));
      invitations.hidden = false;
    }
  }

  function actions(member) {
    const isSelf = isOwn(member);
    // Only owners deal with owners.
    const mayChange = mayManage && (member.role !== "owner" || whoami().role === "owner");
    const name = userName(member.user);
    return [
      mayChange && actionButton("Change role", name, () => change(member)),
      mayChange && !isSelf && actionButton("Remove", name, () => end(member)),
      isSelf && el("button", { class: "small", type: "button", on: { click: leave } }, "Leave"),
    ].filter(Boolean);
  }

  async function invite() {
    const created = await invitePerson();
    if (created === null || view.signal.aborted) return;
    await drawInvitations();
    focusRow(created.id);
  }

  async function withdraw(invitation) {
    if (!(await withdrawInvitation(invitation)) || view.signal.aborted) return;
    await drawInvitations();
    inviteButton.focus();
  }

  async function change(member) {
    const changed = await changeRole(member);
    if (changed === null || view.signal.aborted) return;
    // Of oneself: every page has to be drawn for the new role.
    if (isOwn(member)) {
      setCaller(null);
      return window.dispatchEvent(new Event("hashchange"));
    }
    await drawMembers();
    focusRow(member.user.user_id);
  }

  async function end(member) {
    if (!(await removeMember(member)) || view.signal.aborted) return;
    await drawMembers();
    view.main.querySelector("h1").focus();
  }

  async function leave() {
    if (await leaveWorkspace(visibleName(whoami().workspace_name))) window.dispatchEvent(new Event("quarterdeck:left-workspace"));
  }

  function focusRow(id) {
    /** @type {HTMLElement | null} */ (view.main.querySelector(`[data-id="${id}"]`))?.focus();
  }
}

const MEMBER_COLUMNS = [
  { name: "Name", cell: (member) => el("div", { class: "person" }, avatar(member.user), el("span", { class: "name" }, userName(member.user)), isOwn(member) && el("span", { class: "tag run" }, "You")) },
  { name: "Email", cell: (member) => (member.user.primary_email === null ? el("span", { class: "muted" }, "None") : visibleText(member.user.primary_email)) },
  { name: "Role", class: "short", cell: (member) => roleTag(member.role) },
];

const INVITATION_COLUMNS = [
  { name: "Email", cell: (one) => el("span", { class: "name" }, visibleText(one.email)) },
  { name: "Role", class: "short", cell: (one) => roleTag(one.role) },
  { name: "Invited", class: "short", cell: (one) => el("div", {}, relativeTime(one.created_at), el("div", { class: "muted small-text" }, "by ", one.created_by === null ? "Operator" : userName(one.created_by))) },
  { name: "Expires", class: "short", cell: (one) => (Date.parse(one.expires_at) <= Date.now() ? el("span", { class: "tag bad" }, "Expired") : relativeTime(one.expires_at)) },
];

function isOwn(member) {
  return member.user.user_id === profile()?.user.user_id;
}

function rowAttributes(member) {
  return { "data-id": member.user.user_id, tabindex: "-1" };
}

function invitationAttributes(invitation) {
  return { "data-id": invitation.id, tabindex: "-1" };
}

function actionButton(label, name, act) {
  return el("button", { class: "small", type: "button", "aria-label": `${label} ${name}`, on: { click: act } }, label);
}
