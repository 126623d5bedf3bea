// Tokens for one session: made to be given away, listed, revoked.

import { all, post } from "../api.js";
import { copyButton } from "../copying.js";
import { field, formDialog, tell } from "../dialogs.js";
import { el, fill } from "../dom.js";
import { faultBox, loading } from "../notices.js";
import { when } from "../times.js";

const HOUR_MS = 3_600_000;
const LIVES = [
  ["", "As the server is set, usually a day"],
  [1, "1 hour"],
  [7 * 24, "7 days"],
  [30 * 24, "30 days"],
];
// The longest life that servers usually allow is counted from their clock, a little later than from ours.
const MARGIN_MS = 60_000;

export async function share(sessionId, signal) {
  const path = `/sessions/${sessionId}/tokens`;
  const life = el("select", {}, LIVES.map(([hours, name]) => el("option", { value: hours }, name)));
  const create = el("button", { type: "submit", class: "primary" }, "Create a token");
  const made = el("div", {});
  const tokens = el("div", {});

  async function submitted(event) {
    event.preventDefault();
    if (create.disabled) return;
    create.disabled = true;
    try {
      fill(made, secretBox(await post(path, { expires_at: expiry(life.value) }, signal)));
      made.querySelector("button").focus();
      await list();
    } catch (fault) {
      if (!signal.aborted) fill(made, faultBox(fault));
    } finally {
      create.disabled = false;
    }
  }

  async function list() {
    try {
      const found = await Array.fromAsync(all(path, {}, signal));
      const good = found.filter((one) => one.revoked_at === null && Date.parse(one.expires_at) > Date.now());
      if (good.length === 0) fill(tokens, el("p", { class: "quiet" }, "No token is in use."));
      else fill(tokens, el("ul", { class: "tokens" }, good.map(entry)));
    } catch (fault) {
      if (!signal.aborted) fill(tokens, faultBox(fault, list));
    }
  }

  function entry(token) {
    const attributes = { type: "button", class: "small", "aria-label": `Revoke ${token.prefix}…` };
    return el(
      "li",
      {},
      el("code", {}, `${token.prefix}…`),
      el("span", { class: "quiet" }, "ends ", when(token.expires_at)),
      el("button", { ...attributes, on: { click: () => revoke(token) } }, "Revoke"),
    );
  }

  async function revoke(token) {
    const done = await formDialog({
      title: `Revoke ${token.prefix}…?`,
      fields: el("p", {}, "Whoever uses this token is signed out at once. It cannot be brought back."),
      confirm: "Revoke the token",
      danger: true,
      act: () => post(`${path}/${token.id}/revoke`, undefined, signal),
    });
    if (done === null) return;
    await list();
    (tokens.querySelector("button") ?? create).focus();
  }

  fill(tokens, loading("the tokens"));
  list();
  await tell({
    title: "Share this session",
    confirm: "Close",
    body: [
      el("p", {}, "A session token opens this session and nothing else: who has it can read, write and cancel here."),
      el("form", { on: { submit: submitted } }, field("Valid for", life), el("div", { class: "buttons" }, create)),
      made,
      el("h3", { class: "apart" }, "Tokens in use"),
      tokens,
    ],
  });
}

function expiry(hours) {
  return hours === "" ? null : new Date(Date.now() + Number(hours) * HOUR_MS - MARGIN_MS).toISOString();
}

function secretBox({ token, expires_at: expiresAt }) {
  const address = new URL(".", document.baseURI).href;
  return el(
    "div",
    { role: "status" },
    el("p", {}, el("strong", {}, "Copy it now: it is not shown again.")),
    el("div", { class: "secret" }, el("code", {}, token), copyButton(token, "the token")),
    el("p", { class: "hint" }, "To use it, sign in at ", el("code", {}, address), ". It ends ", when(expiresAt), "."),
  );
}
