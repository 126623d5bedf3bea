// The workspace, who is in it, and the key that shows it.

import { get } from "../api.js";
import { can, whoami } from "../credential.js";
import { copyButton } from "../copying.js";
import { el, fill } from "../dom.js";
import { emptyBox, faultBox, lackingBox, loading } from "../notices.js";
import { nameOf } from "../people.js";
import { pagedTable } from "../tables.js";
import { when } from "../times.js";
import { named } from "../visible.js";

const MEMBERS = [
  { name: "Name", cell: (member) => el("strong", {}, nameOf(member.user)) },
  { name: "Address", cell: (member) => member.user.primary_email ?? el("span", { class: "quiet" }, "none") },
  { name: "Role", cell: (member) => el("span", { class: member.role === "owner" ? "tag run" : "tag" }, member.role) },
  { name: "Joined", cell: (member) => when(member.joined_at) },
  { name: "Left", cell: (member) => when(member.ended_at, "still a member") },
];

export async function show(view) {
  if (!can("workspace.read")) {
    fill(view.main, view.title("Workspace"), lackingBox("the workspace", "workspace.read"), caller());
    return;
  }
  const workspace = el("section", { class: "card" }, loading("the workspace"));
  fill(
    view.main,
    view.title("Workspace"),
    el("div", { class: "cards" }, workspace, caller()),
    el("h2", { class: "section" }, "Members"),
    pagedTable({ caption: "Members", columns: MEMBERS, path: "/members", query: { order: "asc" }, signal: view.signal, row, empty }),
    el("p", { class: "quiet small-text" }, "The operator changes workspaces and members, with ", el("code", {}, "qd admin"), "."),
  );
  fillIn();

  async function fillIn() {
    try {
      fill(workspace, facts(await get("/workspace", {}, view.signal)));
    } catch (fault) {
      if (!view.signal.aborted) fill(workspace, faultBox(fault, fillIn));
    }
  }
}

function facts(workspace) {
  const life = workspace.max_key_days === null ? "As long as their maker says" : `${workspace.max_key_days} days at most`;
  return [
    el("h2", {}, named(workspace.name)),
    list([
      ["Id", [el("code", {}, workspace.id), " ", copyButton(workspace.id, "the id of the workspace")]],
      ["Owner", nameOf(workspace.owner)],
      ["Created", when(workspace.created_at)],
      ["Keys live", life],
    ]),
  ];
}

function caller() {
  const { label, prefix, permissions, expires_at: ends, user } = whoami();
  return el(
    "section",
    { class: "card" },
    el("h2", {}, "You are signed in with"),
    list([
      ["Key", [el("strong", {}, named(label)), " ", el("code", {}, `${prefix}…`)]],
      ["Made by", nameOf(user)],
      ["Expires", when(ends)],
      ["May", el("ul", { class: "tags" }, permissions.map((name) => el("li", { class: "tag" }, name)))],
    ]),
  );
}

function list(pairs) {
  return el("dl", { class: "facts" }, pairs.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function row(member) {
  return { class: member.ended_at === null ? null : "ended" };
}

function empty() {
  return emptyBox("Nobody is here", el("p", {}, "The operator adds people with ", el("code", {}, "qd admin add-member"), "."));
}
