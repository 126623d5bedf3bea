// The files of a session as a tree beside the conversation, or in a drawer on narrow screens.

import { get } from "../api.js";
import { el, fill, uniqueId } from "../dom.js";
import { formatBytes, pluralize } from "../format.js";
import { icon } from "../icons.js";
import { errorBox, loading, notice } from "../notices.js";
import { fileTree } from "../skills/file_tree.js";
import { download } from "../transfer.js";

const STORAGE_KEY = "quarterdeck.files-panel";
const PAGE_SIZE = 200;
// Loaded at once. More are loaded on demand.
const MAX_FILES = 2000;
// A run can change files many times in a second.
const REFRESH_MS = 1000;
const wideScreen = window.matchMedia("(min-width: 72rem)");

export class FilesPanel {
  #session;
  #files;
  #signal;
  #maxFiles = MAX_FILES;
  #expanded = new Set();
  /** The list that is shown, as JSON. Null: none yet. */
  #shown = null;
  #isLoading = false;
  #isStale = false;
  #summary = el("span", { class: "muted small-text" });
  #body = el("div", { class: "files-body" });
  #errorContainer = el("div", {});
  #archive = el("button", { type: "button", class: "small", hidden: true, on: { click: () => this.#downloadAll() } }, "Download all");

  /** `files`: a SessionFiles. */
  constructor(session, files, signal) {
    this.#session = session;
    this.#files = files;
    this.#signal = signal;
    const headingId = uniqueId("files");
    const close = { type: "button", class: "small icon-button", "aria-label": "Close files", title: "Close files", on: { click: () => this.#toggle(false) } };
    this.node = el(
      "section",
      { class: "files-panel", id: uniqueId("panel"), hidden: true, "aria-labelledby": headingId, on: { keydown: (event) => this.#onKeydown(event) } },
      el("div", { class: "files-head" }, el("h2", { id: headingId, tabindex: "-1" }, "Files"), this.#summary, this.#archive, el("button", close, icon("close"))),
      this.#errorContainer,
      this.#body,
    );
    this.button = el("button", { type: "button", class: "small with-icon files-button", "aria-controls": this.node.id, "aria-expanded": "false", on: { click: () => this.#toggle(this.node.hidden) } }, icon("files"), "Files");
    // A drawer covers the conversation, so it is not opened without a click.
    if (wideScreen.matches && localStorage.getItem(STORAGE_KEY) === "open") this.#show(true);
  }

  setSession(session) {
    const isChanged = (session.sandbox === null) !== (this.#session.sandbox === null);
    this.#session = session;
    if (isChanged) this.changed();
  }

  /** Loads the list again if it is shown: files may have changed. */
  changed() {
    this.#isStale = true;
    if (!this.node.hidden) this.#load();
  }

  #toggle(isOpen) {
    localStorage.setItem(STORAGE_KEY, isOpen ? "open" : "closed");
    this.#show(isOpen);
    if (isOpen) this.node.querySelector("h2").focus({ preventScroll: true });
    else this.button.focus({ preventScroll: true });
  }

  #show(isOpen) {
    this.node.hidden = !isOpen;
    this.button.setAttribute("aria-expanded", String(isOpen));
    if (isOpen && (this.#shown === null || this.#isStale)) this.#load();
  }

  #onKeydown(event) {
    if (event.key === "Escape") this.#toggle(false);
  }

  async #load() {
    if (this.#isLoading) return;
    this.#isLoading = true;
    this.#isStale = false;
    if (this.#shown === null) fill(this.#body, loading("files"));
    try {
      const list = await this.#list();
      fill(this.#errorContainer);
      this.#draw(list);
    } catch (error) {
      if (this.#signal.aborted) return;
      if (this.#shown === null) fill(this.#body);
      fill(this.#errorContainer, errorBox(error, () => this.#load()));
    } finally {
      this.#isLoading = false;
    }
    if (this.#isStale) setTimeout(() => this.changed(), REFRESH_MS);
  }

  /** Returns `{items, isComplete}`. */
  async #list() {
    const items = [];
    let after = null;
    do {
      const page = await get(`/sessions/${this.#session.id}/files`, { limit: PAGE_SIZE, after }, this.#signal);
      items.push(...page.items);
      after = page.next_cursor;
    } while (after !== null && items.length < this.#maxFiles);
    return { items, isComplete: after === null };
  }

  #draw({ items, isComplete }) {
    const state = JSON.stringify([items, isComplete, this.#session.sandbox]);
    if (state === this.#shown) return;
    this.#shown = state;
    const focused = this.#focusedPath();
    const files = items.filter(({ kind }) => kind === "file");
    this.#archive.hidden = items.length === 0;
    const count = `${pluralize(files.length, "file")}${isComplete ? "" : " or more"}`;
    fill(this.#summary, items.length > 0 && `${count}, ${formatBytes(files.reduce((sum, file) => sum + file.bytes, 0))}`);
    const entries = items.map((one) => ({ ...one, executable: one.kind === "file" && (one.mode & 0o111) !== 0 }));
    const link = ({ path }) => `#/sessions/${this.#session.id}?${new URLSearchParams({ file: path })}`;
    const tree = items.length > 0 && fileTree(entries, link, (file) => this.#files.viewEntry(file), this.#expanded).node;
    fill(this.#body, tree || this.#empty(), !isComplete && this.#moreButton());
    if (focused !== null) this.#body.querySelector(`[data-path="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  #focusedPath() {
    const focused = document.activeElement;
    return focused instanceof HTMLElement && this.#body.contains(focused) ? (focused.dataset.path ?? null) : null;
  }

  #moreButton() {
    const more = () => {
      this.#maxFiles += MAX_FILES;
      this.#load();
    };
    return el("button", { type: "button", class: "small more", on: { click: more } }, "Load more files");
  }

  #empty() {
    const [title, text] = this.#session.sandbox === null
      ? ["No sandbox", "The agent of this session has no folder. To let it work with files and run commands, turn on its sandbox in Edit session."]
      : ["No files yet", "Files that the agent writes and files that you attach to messages appear here."];
    return el("div", { class: "files-empty" }, el("h3", {}, title), el("p", { class: "muted" }, text));
  }

  async #downloadAll() {
    const name = `session-${this.#session.id}-files.tar.gz`;
    this.#archive.disabled = true;
    fill(this.#errorContainer);
    try {
      await download(`/sessions/${this.#session.id}/files/archive`, {}, name);
      notice(`${name} was downloaded.`);
    } catch (error) {
      if (!this.#signal.aborted) fill(this.#errorContainer, errorBox(error));
    } finally {
      this.#archive.disabled = false;
    }
  }
}
