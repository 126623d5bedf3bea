// The menu of a session: rename, fork, export, archive, unarchive, delete.

import { patch, post, remove } from "../api.js";
import { can } from "../credential.js";
import { field, formDialog } from "../dialogs.js";
import { el, uniqueId } from "../dom.js";
import { notice } from "../notices.js";
import { navigate } from "../router.js";
import { download } from "../transfer.js";
import { visibleText } from "../visible_text.js";

const EXPORTS = { md: "text/markdown", jsonl: "application/jsonl" };

export function sessionTitle(session) {
  return session.title?.trim() ? visibleText(session.title) : "Untitled session";
}

/** `onChange(session)` is called with the changed session, `onError(error)` if an item without a dialog has failed. */
export function sessionMenu(session, onChange, onError) {
  const path = `/sessions/${session.id}`;
  const title = sessionTitle(session);
  const menuId = uniqueId("menu");
  const canManage = can("session.manage");

  async function change(dialog) {
    const changed = await formDialog(dialog);
    if (changed !== null) onChange(changed);
  }

  const rename = () =>
    change({
      title: "Rename session",
      fields: field("Title", el("input", { name: "title", maxlength: 200, value: session.title ?? "" }), "Optional."),
      confirm: "Rename",
      act: (data) => patch(path, { title: data.get("title").trim() || null }),
    });

  const archive = () =>
    change({
      title: `Archive “${title}”?`,
      fields: el("p", {}, "Archived sessions are hidden from the list and accept no input. You can unarchive the session at any time."),
      confirm: "Archive",
      act: () => patch(path, { archived: true }),
    });

  const unarchive = () =>
    change({
      title: `Unarchive “${title}”?`,
      fields: el("p", {}, "The session returns to the list and accepts input again."),
      confirm: "Unarchive",
      act: () => patch(path, { archived: false }),
    });

  async function destroy() {
    const done = await formDialog({
      title: `Delete “${title}”?`,
      fields: el("p", {}, "This deletes the session with its log, runs and tokens, and cancels its current run. This can't be undone."),
      confirm: "Delete session",
      danger: true,
      act: () => remove(path),
    });
    if (done === null) return;
    notice(`“${title}” was deleted.`);
    navigate("/sessions");
  }

  async function fork() {
    const forked = await post(`${path}/fork`, {});
    notice(`This is a copy of “${title}”.`);
    navigate(`/sessions/${forked.id}`);
  }

  async function exportAs(extension) {
    const name = `session-${session.id}.${extension}`;
    await download(`${path}/export`, {}, name, { Accept: EXPORTS[extension] });
    notice(`${name} was downloaded.`);
  }

  function item(name, act) {
    const onClick = () => {
      list.hidePopover();
      Promise.resolve(act()).catch(onError);
    };
    return el("button", { type: "button", on: { click: onClick } }, name);
  }

  const list = el(
    "div",
    { class: "menu", id: menuId, popover: "auto", on: { beforetoggle: position } },
    canManage && [item("Rename…", rename), item("Fork", fork)],
    item("Export as Markdown", () => exportAs("md")),
    item("Export as JSON Lines", () => exportAs("jsonl")),
    canManage && [
      session.archived_at === null ? item("Archive…", archive) : item("Unarchive…", unarchive),
      item("Delete…", destroy),
    ],
  );
  const button = el("button", { type: "button", popovertarget: menuId, "aria-haspopup": "true" }, "More");

  /** A popover is in the top layer and is not positioned relative to its button. */
  function position() {
    const { bottom, right } = button.getBoundingClientRect();
    list.style.top = `${bottom + window.scrollY + 4}px`;
    list.style.right = `${Math.max(0, document.documentElement.clientWidth - right)}px`;
  }

  return el("span", {}, button, list);
}
