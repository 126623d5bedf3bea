// How long the data of the workspace is kept: a card, and a form to change it.

import { patch } from "../api.js";
import { can } from "../credential.js";
import { field, formDialog } from "../dialogs.js";
import { el, fill } from "../dom.js";
import { notice } from "../notices.js";

const MAX_DAYS = 3650;
// Field of the API, label, shortest value.
/** @type {[string, string, number][]} */
const KINDS = [
  ["run_days", "Runs", 1],
  ["event_days", "Events", 1],
  ["file_days", "Files", 1],
  ["receipt_days", "Idempotency receipts", 7],
  ["audit_days", "Audit log", 1],
  ["delivery_days", "Webhook deliveries", 1],
  ["usage_days", "Usage", 1],
];

// They delete conversations and files, so the server asks for a second permission.
const CONTENT = ["run_days", "event_days", "file_days"];

/** Returns `{node, draw(workspace)}`. */
export function retentionCard() {
  const node = el("section", { class: "card", hidden: true });

  function draw(workspace) {
    const edit = async () => {
      const changed = await editRetention(workspace);
      if (changed === null) return;
      notice("Retention saved.");
      draw(changed);
      node.querySelector("button").focus();
    };
    const button = can("key.manage") && el("button", { type: "button", class: "small", on: { click: edit } }, "Edit retention");
    const pairs = KINDS.map(([kind, label]) => [label, daysText(workspace.effective_retention[kind], workspace.retention[kind] === null)]);
    fill(
      node,
      el("h2", {}, "Retention"),
      el("dl", { class: "facts" }, pairs.map(([label, value]) => [el("dt", {}, label), el("dd", {}, value)])),
      el("p", { class: "hint" }, "Older data is deleted within about an hour. Events do not outlive their run."),
      button && el("div", { class: "buttons" }, button),
    );
    node.hidden = false;
  }

  return { node, draw };
}

/** Returns the changed workspace, or null. */
function editRetention({ retention, effective_retention: effective }) {
  const input = (kind, shortest) =>
    el("input", {
      type: "number",
      name: kind,
      value: retention[kind] ?? "",
      placeholder: retention[kind] === null ? daysText(effective[kind], true) : "Default",
      min: shortest,
      max: MAX_DAYS,
      step: 1,
    });
  const mayExpireContent = can("session.manage");
  const kinds = KINDS.filter(([kind]) => mayExpireContent || !CONTENT.includes(kind));
  return formDialog({
    title: "Edit retention",
    fields: [
      el("p", {}, "Days for which data is kept. Leave a field empty for the default of the server. Deleted data can't be restored."),
      !mayExpireContent && el("p", { class: "hint" }, "Changing runs, events and files requires the permission session.manage."),
      el("div", { class: "model-settings" }, kinds.map(([kind, label, shortest]) => field(label, input(kind, shortest)))),
    ],
    confirm: "Save",
    act: (data) => patch("/workspace", { retention: values(kinds, data) }),
  });
}

function values(kinds, data) {
  return Object.fromEntries(kinds.map(([kind]) => [kind, data.get(kind) === "" ? null : Number(data.get(kind))]));
}

function daysText(days, isDefault) {
  const text = days === null ? "Forever" : days === 1 ? "1 day" : `${days} days`;
  return isDefault ? `${text} (default)` : text;
}
