// The dialog with the links to a session. Links for people outside the workspace have a session token, which can be revoked.

import { listAll, post } from "../api.js";
import { copyButton } from "../clipboard.js";
import { field, formDialog, messageDialog } from "../dialogs.js";
import { el, fill, uniqueId } from "../dom.js";
import { clearFormErrors, showFormError } from "../form_errors.js";
import { errorBox, loading } from "../notices.js";
import { relativeTime } from "../time_format.js";
import { visibleName } from "../visible_text.js";

const HOUR_MS = 3_600_000;
const LIFETIMES = [
  ["", "Default (usually 1 day)"],
  [1, "1 hour"],
  [7 * 24, "7 days"],
  [30 * 24, "30 days"],
];
// The server checks the maximum lifetime against its own clock.
const CLOCK_SKEW_MS = 60_000;

export async function shareDialog(sessionId, signal) {
  const path = `/sessions/${sessionId}/tokens`;
  const url = new URL(`#/sessions/${sessionId}`, document.baseURI).href;
  const lifetime = el("select", { name: "expires_at" }, LIFETIMES.map(([hours, label]) => el("option", { value: hours }, label)));
  const label = el("input", { name: "label", maxlength: 200, autocomplete: "off" });
  const mayResolve = el("input", { type: "checkbox", id: uniqueId("may-resolve") });
  const create = el("button", { type: "submit", class: "primary" }, "Create link");
  const newToken = el("div", {});
  const tokens = el("div", {}, loading("tokens"));

  async function onSubmit(event) {
    event.preventDefault();
    if (create.disabled) return;
    create.disabled = true;
    clearFormErrors(event.target, newToken);
    try {
      fill(newToken, secretBox(url, await post(path, tokenBody(), signal)));
      newToken.querySelector("button").focus();
      await list();
    } catch (error) {
      if (!signal.aborted) showFormError(event.target, newToken, error);
    } finally {
      create.disabled = false;
    }
  }

  function tokenBody() {
    return { expires_at: expiry(lifetime.value), label: label.value.trim() || null, may_resolve: mayResolve.checked };
  }

  async function list() {
    try {
      const all = await Array.fromAsync(listAll(path, {}, signal));
      const active = all.filter((one) => one.revoked_at === null && Date.parse(one.expires_at) > Date.now());
      if (active.length === 0) fill(tokens, el("p", { class: "muted" }, "No active tokens"));
      else fill(tokens, el("ul", { class: "tokens" }, active.map(tokenRow)));
    } catch (error) {
      if (!signal.aborted) fill(tokens, errorBox(error, list));
    }
  }

  function tokenRow(token) {
    const attributes = { type: "button", class: "small", "aria-label": `Revoke ${token.prefix}…` };
    return el(
      "li",
      {},
      token.label && el("strong", {}, visibleName(token.label)),
      el("code", {}, `${token.prefix}…`),
      token.may_resolve && el("span", { class: "tag" }, "Answers requests"),
      el("span", { class: "muted" }, "Expires ", relativeTime(token.expires_at)),
      el("button", { ...attributes, on: { click: () => revoke(token) } }, "Revoke"),
    );
  }

  async function revoke(token) {
    const done = await formDialog({
      title: `Revoke ${token.prefix}…?`,
      fields: el("p", {}, "Everyone using this token is signed out immediately. This can't be undone."),
      confirm: "Revoke token",
      danger: true,
      act: () => post(`${path}/${token.id}/revoke`, undefined, signal),
    });
    if (done === null) return;
    await list();
    (tokens.querySelector("button") ?? create).focus();
  }

  list();
  await messageDialog({
    title: "Share this session",
    confirm: "Close",
    isPrimary: false,
    body: [
      el("h3", {}, "Members of the workspace"),
      linkBox(url, "link"),
      el("h3", { class: "share-part" }, "Others"),
      el("p", {}, "A link with a session token gives access to this session only: to read it, send messages, and cancel or retry runs."),
      el(
        "form",
        { on: { submit: onSubmit } },
        field("Label", label, "Optional. Shown with the messages and answers that are sent with this link."),
        field("Expires after", lifetime),
        el("div", { class: "choice" }, mayResolve, el("label", { for: mayResolve.id }, "May answer requests of this session, such as approvals")),
        el("div", { class: "buttons" }, create),
      ),
      newToken,
      el("h3", { class: "share-part" }, "Active tokens"),
      tokens,
    ],
  });
}

function expiry(hours) {
  return hours === "" ? null : new Date(Date.now() + Number(hours) * HOUR_MS - CLOCK_SKEW_MS).toISOString();
}

function secretBox(url, { token, expires_at: expiresAt }) {
  return el(
    "div",
    { role: "status" },
    el("p", {}, el("strong", {}, "Copy this link now. You won't be able to see it again.")),
    linkBox(`${url}?token=${token}`, "link with token"),
    el("p", { class: "hint" }, "Everyone who has this link can use the session. Expires ", relativeTime(expiresAt), "."),
    el("p", { class: "hint" }, "For the API: ", copyButton(token, "token", "Copy token")),
  );
}

function linkBox(url, what) {
  return el("div", { class: "secret" }, el("code", {}, url), copyButton(url, what));
}
