// Dialogs that invite people, change their roles, and end memberships.

import { idempotentPost, patch, post, remove } from "../api.js";
import { copyButton } from "../clipboard.js";
import { field, formDialog, messageDialog } from "../dialogs.js";
import { el } from "../dom.js";
import { notice } from "../notices.js";
import { relativeTime } from "../time_format.js";
import { userName } from "../users.js";
import { visibleText } from "../visible_text.js";
import { roleField } from "./roles.js";

/** Returns the invitation, or null. */
export async function invitePerson() {
  const send = idempotentPost("/invitations");
  const email = el("input", { name: "email", required: true, maxlength: 254, inputmode: "email", autocomplete: "off", autocapitalize: "none", spellcheck: "false" });
  const created = await formDialog({
    title: "Invite a person",
    fields: [field("Email", email), roleField("member")],
    confirm: "Create link",
    act: (data) => send({ email: data.get("email").trim(), role: data.get("role") }),
  });
  if (created !== null) await showLink(created);
  return created;
}

function showLink({ email, token, expires_at: expiresAt }) {
  if (!token) {
    const body = el("p", {}, "The invitation was created, but the connection failed before its link arrived. Withdraw it and invite the person again.");
    return messageDialog({ title: "Link lost", body, confirm: "OK" });
  }
  const url = `${new URL("#/invitation", document.baseURI).href}?token=${token}`;
  const body = [
    el("p", {}, "Send this link to ", el("strong", {}, visibleText(email)), " yourself: Quarterdeck sends no email. You won't be able to see it again."),
    el("div", { class: "secret" }, el("code", {}, url), copyButton(url, "link")),
    el("p", { class: "hint" }, "Whoever has the link can join, once. It expires ", relativeTime(expiresAt), "."),
  ];
  return messageDialog({ title: "Invitation link", body, confirm: "I've copied the link", undismissable: true });
}

/** Returns whether it was withdrawn. */
export async function withdrawInvitation({ id, email }) {
  const done = await formDialog({
    title: "Revoke this invitation?",
    fields: el("p", {}, "The link for ", el("strong", {}, visibleText(email)), " stops working."),
    confirm: "Revoke invitation",
    danger: true,
    act: () => remove(`/invitations/${id}`),
  });
  return done !== null;
}

/** Returns the changed member, or null. */
export async function changeRole({ user, role }) {
  const changed = await formDialog({
    title: `Change the role of ${userName(user)}`,
    fields: [roleField(role), el("p", { class: "hint" }, "Takes effect immediately. The person's keys never allow more than the role.")],
    confirm: "Change role",
    act: (data) => patch(`/members/${user.user_id}`, { role: data.get("role") }),
  });
  if (changed !== null) notice(`${userName(user)} is now ${changed.role}.`);
  return changed;
}

/** Returns whether the person was removed. */
export async function removeMember({ user }) {
  const name = userName(user);
  const done = await formDialog({
    title: `Remove ${name}?`,
    fields: [
      el("p", {}, `${name} loses access to this workspace at once. Keys and session tokens that they created here are revoked.`),
      el("p", {}, "Sessions and everything else that they created stays."),
    ],
    confirm: "Remove member",
    danger: true,
    act: () => remove(`/members/${user.user_id}`),
  });
  if (done !== null) notice(`${name} was removed.`);
  return done !== null;
}

/** Returns whether the person who has signed in has left. */
export async function leaveWorkspace(workspaceName) {
  const done = await formDialog({
    title: `Leave ${workspaceName}?`,
    fields: el("p", {}, "You lose access to this workspace at once. Keys and session tokens that you created here are revoked. To return, you need a new invitation."),
    confirm: "Leave workspace",
    danger: true,
    act: () => post("/workspace/leave"),
  });
  return done !== null;
}
