// The webhooks of the workspace.

import { can } from "../credential.js";
import { el, fill } from "../dom.js";
import { emptyState, missingPermission } from "../notices.js";
import { navigate, replaceQuery } from "../router.js";
import { pagedTable } from "../tables.js";
import { relativeTime } from "../time_format.js";
import { userName } from "../users.js";
import { visibleText } from "../visible_text.js";
import { webhookState } from "../webhooks/state.js";
import { createWebhook, webhookName } from "../webhooks/webhook_dialogs.js";

const COLUMNS = [
  { name: "Webhook", cell: name },
  { name: "Events", cell: (webhook) => el("ul", { class: "tags" }, webhook.events.map((event) => el("li", { class: "tag" }, event))) },
  { name: "State", class: "short", cell: webhookState },
  { name: "Created", class: "short", cell: (webhook) => relativeTime(webhook.created_at) },
  { name: "Created by", class: "short", cell: (webhook) => userName(webhook.created_by) },
];

export async function show(view) {
  const createButton = can("key.manage") && el("button", { class: "primary", type: "button", on: { click: create } }, "Create webhook");
  fill(
    view.main,
    view.title("Webhooks", createButton),
    el("p", { class: "muted" }, "Webhooks send a signed request to your server when a run ends."),
    can("workspace.read")
      ? pagedTable({ caption: "Webhooks", columns: COLUMNS, path: "/webhooks", signal: view.signal, empty })
      : missingPermission("webhooks", "workspace.read"),
  );
  if (view.query.has("new") && createButton) {
    replaceQuery({});
    // After the heading has received the focus, to which the dialog returns it.
    setTimeout(create);
  }

  async function create() {
    const webhook = await createWebhook();
    if (webhook !== null && !view.signal.aborted) navigate(`/webhooks/${webhook.id}`);
  }
}

function name(webhook) {
  return el(
    "div",
    {},
    el("a", { class: "name", href: `#/webhooks/${webhook.id}` }, webhookName(webhook)),
    webhook.description !== null && el("div", { class: "muted small-text" }, visibleText(webhook.url)),
  );
}

function empty() {
  const hint = can("key.manage") ? "Create one to be notified when runs complete, fail or wait for an answer." : "Creating one requires the permission key.manage.";
  return emptyState("No webhooks yet", el("p", {}, hint));
}
