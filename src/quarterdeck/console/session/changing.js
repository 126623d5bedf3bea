// What can be done to a session as a whole: rename, archive and bring back, delete.

import { patch, remove } from "../api.js";
import { field, formDialog } from "../dialogs.js";
import { el, freshId } from "../dom.js";
import { notice } from "../notices.js";
import { go } from "../router.js";
import { visible } from "../visible.js";

const UNTITLED = "Untitled session";

export function nameOf(session) {
  return session.title?.trim() ? visible(session.title) : UNTITLED;
}

/** A button with a menu behind it. `changed(session)` is told what the session has become. */
export function menu(session, changed) {
  const path = `/sessions/${session.id}`;
  const id = freshId("menu");
  const isArchived = session.archived_at !== null;

  async function rename() {
    const input = el("input", { name: "title", maxlength: 200, value: session.title ?? "" });
    const done = await formDialog({
      title: "Rename the session",
      fields: field("Title", input, "Empty: it has none."),
      confirm: "Rename",
      act: (data) => patch(path, { title: data.get("title").trim() || null }),
    });
    if (done !== null) changed(done);
  }

  async function archive() {
    const done = await formDialog({
      title: `Archive “${nameOf(session)}”?`,
      fields: el("p", {}, "It takes no more input and leaves the list. It can still be read, and brought back."),
      confirm: "Archive",
      act: () => patch(path, { archived: true }),
    });
    if (done !== null) changed(done);
  }

  async function bringBack() {
    const done = await formDialog({
      title: `Bring back “${nameOf(session)}”?`,
      fields: el("p", {}, "It takes input again."),
      confirm: "Bring back",
      act: () => patch(path, { archived: false }),
    });
    if (done !== null) changed(done);
  }

  async function destroy() {
    const done = await formDialog({
      title: `Delete “${nameOf(session)}”?`,
      fields: el("p", {}, "Its log, its runs and its tokens go with it, for good. A run under way is cancelled."),
      confirm: "Delete for good",
      danger: true,
      act: () => remove(path),
    });
    if (done === null) return;
    notice(`“${nameOf(session)}” was deleted.`);
    go("/sessions");
  }

  function entry(name, act) {
    const chosen = () => {
      list.hidePopover();
      act();
    };
    return el("button", { type: "button", on: { click: chosen } }, name);
  }

  const list = el(
    "div",
    { class: "menu", id, popover: "auto", on: { beforetoggle: place } },
    entry("Rename…", rename),
    isArchived ? entry("Bring back…", bringBack) : entry("Archive…", archive),
    entry("Delete…", destroy),
  );
  const button = el("button", { type: "button", popovertarget: id, "aria-haspopup": "true" }, "More");

  /** What stands in front of the page does not know what it belongs to. */
  function place() {
    const { bottom, right } = button.getBoundingClientRect();
    list.style.top = `${bottom + window.scrollY + 4}px`;
    list.style.right = `${Math.max(0, document.documentElement.clientWidth - right)}px`;
  }

  return el("span", {}, button, list);
}
