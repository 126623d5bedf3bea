// The requests of all runs that wait for an answer.

import { can } from "../credential.js";
import { el, fill, uniqueId } from "../dom.js";
import { inboxList } from "../inbox/inbox_list.js";
import { KINDS } from "../inbox/labels.js";
import { onOpenActionsChange } from "../inbox/open_actions.js";
import { emptyState, missingPermission } from "../notices.js";
import { replaceQuery } from "../router.js";
import { segments } from "../segments.js";

const STATES = [["open", "Open"], ["all", "All"]];

export async function show(view) {
  if (!can("workspace.read")) {
    fill(view.main, view.title("Inbox"), missingPermission("the inbox", "workspace.read"));
    return;
  }
  const states = segments("State", STATES, view.query.get("state") ?? "open", load);
  const kinds = [["", "All kinds"], ...Object.entries(KINDS).map(([kind, { name }]) => [kind, name])];
  const selected = view.query.get("kind") ?? "";
  const kind = el(
    "select",
    { id: uniqueId("kind"), "aria-label": "Kind", on: { change: load } },
    kinds.map(([value, name]) => el("option", { value, selected: value === selected }, name)),
  );
  const list = inboxList(view.signal, empty);

  function load() {
    const filters = { state: states.value(), kind: kind.value };
    replaceQuery(Object.fromEntries(Object.entries(filters).filter(([, value]) => value !== "" && value !== "open")));
    return list.load({ ...filters, state: filters.state === "all" ? null : filters.state });
  }

  function empty({ state, kind: chosen }) {
    if (chosen) return emptyState("No matching requests");
    const explanation = el("p", {}, "A run that needs an approval, the result of a tool or a higher limit waits here for an answer.");
    return emptyState(state === "open" ? "No open requests" : "No requests yet", explanation);
  }

  fill(view.main, view.title("Inbox"), el("div", { class: "toolbar" }, states.node, el("div", { class: "field inbox-kinds" }, kind)), list.node);
  onOpenActionsChange(() => list.refresh(), view.signal);
  await load();
}
