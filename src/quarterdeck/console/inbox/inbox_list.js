// The requests of a workspace, newest first. Each can be opened and answered in place.

import { get } from "../api.js";
import { el, fill, uniqueId } from "../dom.js";
import { objectNames } from "../names.js";
import { errorBox, loading } from "../notices.js";
import { sessionTitle } from "../session/session_menu.js";
import { relativeTime } from "../time_format.js";
import { visibleName } from "../visible_text.js";
import { actionCard, FOCUS } from "./action_card.js";
import { kindOf, shortAnswer, shortArguments } from "./labels.js";
import { refreshOpenActions } from "./open_actions.js";

const PAGE_SIZE = 50;
const MAX_PAGE_SIZE = 200;

/** Returns `{node, load(query), refresh()}`. `empty(query)` is shown if no request matches. */
export function inboxList(signal, empty) {
  const list = el("ol", { class: "inbox", "aria-label": "Requests, newest first" });
  const more = el("button", { class: "more", type: "button", on: { click: loadMore } }, "Show more");
  const errorContainer = el("div", {});
  const content = el("div", {}, list, more);
  const node = el("div", {}, loading("inbox"));
  const showTitle = objectNames((id) => `/sessions/${id}`, sessionTitle, signal);
  let items = new Map();
  let query = {};
  let next = null;
  let lastRequest = 0;

  async function load(newQuery) {
    query = newQuery;
    items = new Map();
    list.replaceChildren();
    fill(node, loading("inbox"));
    await request({ limit: PAGE_SIZE }, (page) => {
      next = page.next_cursor;
      for (const action of page.items) append(action);
    });
  }

  async function loadMore() {
    await request({ limit: PAGE_SIZE, after: next }, (page) => {
      next = page.next_cursor;
      for (const action of page.items) append(action);
    });
  }

  /** Adds new requests and updates those that were answered elsewhere. Open forms keep their content. */
  async function refresh() {
    const limit = Math.min(MAX_PAGE_SIZE, Math.max(PAGE_SIZE, items.size));
    await request({ limit }, (page) => {
      const found = new Set(page.items.map((action) => action.id));
      const oldest = page.next_cursor === null ? "" : page.items.at(-1).id;
      for (const action of page.items.toReversed()) {
        if (items.has(action.id)) items.get(action.id).update(action);
        else prepend(action);
      }
      for (const [id, item] of items) if (id >= oldest && !found.has(id)) closed(id, item);
    });
  }

  async function request(page, onPage) {
    lastRequest += 1;
    const number = lastRequest;
    more.disabled = true;
    try {
      const result = await get("/actions", { ...query, ...page }, signal);
      if (number !== lastRequest) return;
      fill(errorContainer);
      onPage(result);
    } catch (error) {
      if (signal.aborted || number !== lastRequest) return;
      fill(errorContainer, errorBox(error, () => load(query)));
    }
    more.disabled = false;
    draw();
  }

  /** Does not move the list if it is already shown: it would lose the focus. */
  function draw() {
    more.hidden = next === null;
    if (items.size > 0) {
      if (!node.contains(content)) fill(node, content, errorContainer);
    } else {
      fill(node, !errorContainer.hasChildNodes() && empty(query), errorContainer);
    }
  }

  function append(action) {
    items.set(action.id, inboxItem(action, showTitle));
    list.append(items.get(action.id).node);
  }

  function prepend(action) {
    const item = inboxItem(action, showTitle);
    items = new Map([[action.id, item], ...items]);
    list.prepend(item.node);
  }

  /** No longer in the list: answered elsewhere. A request that the user has open shows its answer. */
  async function closed(id, item) {
    if (!item.isExpanded) {
      items.delete(id);
      item.node.remove();
      draw();
    } else if (item.isOpen) {
      const action = await get(`/actions/${id}`, {}, signal).catch(() => null);
      if (action !== null) item.update(action);
    }
  }

  return { node, load, refresh };
}

function inboxItem(action, showTitle) {
  const panelId = uniqueId("request");
  const summary = el("span", { class: "inbox-what" });
  const toggle = el("button", { type: "button", class: "inbox-toggle", "aria-expanded": "false", "aria-controls": panelId, on: { click: onToggle } }, summary);
  const expiry = el("span", { class: "muted" });
  const panel = el("div", { class: "inbox-panel", id: panelId, hidden: true });
  const link = el("a", { href: `#/sessions/${action.session_id}?action=${action.id}`, title: "Open in session" }, "Session");
  showTitle(action.session_id, (title) => fill(link, title));
  const node = el(
    "li",
    { class: "inbox-item" },
    el("div", { class: "inbox-row" }, toggle, link, relativeTime(action.created_at), expiry),
    panel,
  );
  let current = action;
  draw();

  function onToggle() {
    panel.hidden = !panel.hidden;
    toggle.setAttribute("aria-expanded", String(!panel.hidden));
    if (!panel.hidden && !panel.hasChildNodes()) drawCard();
  }

  function draw() {
    const isOpen = current.state === "open";
    node.classList.toggle("closed", !isOpen);
    fill(
      summary,
      el("span", { class: "inbox-kind" }, el("span", { class: `tag ${isOpen ? "warn" : ""}` }, kindOf(current).name)),
      current.tool !== null && el("code", {}, visibleName(current.tool)),
      el("span", { class: "inbox-arguments" }, shortArguments(current)),
    );
    fill(expiry, isOpen ? ["expires ", relativeTime(current.expires_at)] : shortAnswer(current));
  }

  function drawCard() {
    fill(panel, actionCard(current, (answered) => { update(answered); refreshOpenActions(); }));
  }

  function update(changed) {
    if (changed.state === current.state) return;
    const hadFocus = panel.contains(document.activeElement);
    current = changed;
    draw();
    if (panel.hasChildNodes()) drawCard();
    if (hadFocus) /** @type {HTMLElement} */ (panel.querySelector(FOCUS)).focus();
  }

  return {
    node,
    update,
    get isExpanded() {
      return !panel.hidden;
    },
    get isOpen() {
      return current.state === "open";
    },
  };
}
