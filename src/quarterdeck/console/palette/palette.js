// The command palette: a dialog with a combobox over a list of commands.

import { sleep } from "../api.js";
import { tokenSessionId, whoami } from "../credential.js";
import { el, fill, uniqueId } from "../dom.js";
import { icon } from "../icons.js";
import { matchingGroups, objectSearch, staticGroups } from "./commands.js";

const IS_MAC = /Mac|iPhone|iPad/.test(navigator.userAgent);
const SEARCH_DELAY_MS = 120;

export const SHORTCUT = IS_MAC ? "⌘K" : "Ctrl K";

/** Ctrl-K on a Mac deletes the rest of a line, so the key is Command there. */
function isShortcut(event) {
  return event.key.toLowerCase() === "k" && (IS_MAC ? event.metaKey : event.ctrlKey) && !event.shiftKey && !event.altKey;
}

/** Keys of a signed-in user open the palette, unless a dialog is open. */
export function listenForShortcut() {
  window.addEventListener("keydown", (event) => {
    if (!isShortcut(event) || whoami() === null || tokenSessionId() !== null) return;
    event.preventDefault();
    const opened = document.querySelector("dialog[open]");
    if (opened === null) openPalette();
    else if (opened instanceof HTMLDialogElement && opened.classList.contains("palette")) opened.close();
  });
}

export function openPalette() {
  const list = el("div", { role: "listbox", id: uniqueId("commands"), "aria-label": "Commands", tabindex: "-1" });
  const input = el("input", {
    type: "text", role: "combobox", "aria-label": "Search or run a command", "aria-expanded": "true", "aria-controls": list.id,
    "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false", placeholder: "Search sessions, agents, skills and commands…",
    on: { input: () => search(), keydown: onKeydown },
  });
  const status = el("p", { class: "palette-status muted", role: "status" });
  const dialog = el(
    "dialog",
    { class: "palette", "aria-label": "Command palette", on: { close: onClose, click: onClick } },
    el("div", { class: "palette-input" }, icon("search"), input),
    list,
    status,
    el("p", { class: "palette-keys muted", "aria-hidden": "true" }, ["↑↓ Select", "↵ Open", "Esc Close"].map((text) => el("span", {}, text))),
  );
  const searchObjects = objectSearch();
  let currentSearch = new AbortController();
  /** Groups of the last search. */
  let found = [];
  /** The shown commands with their elements, in order. */
  let options = [];
  let selected = 0;
  /** Enter was pressed before anything was found. */
  let isRunPending = false;

  async function search() {
    currentSearch.abort();
    currentSearch = new AbortController();
    const { signal } = currentSearch;
    const text = input.value.trim();
    selected = 0;
    isRunPending = false;
    // Until the answer arrives, of what was found before.
    draw(text, matchingGroups(found, text));
    try {
      await sleep(SEARCH_DELAY_MS, signal);
      found = await searchObjects(text, signal);
      if (signal.aborted) return;
      draw(text, found);
      status.textContent = options.length === 0 ? "No results" : "";
      if (isRunPending && options.length > 0) run(options[0].command);
    } catch (error) {
      if (!signal.aborted) status.textContent = error.message;
    }
  }

  /** Objects follow the other commands, so that an answer does not move the selection. */
  function draw(text, objects) {
    options = [];
    fill(list, [...staticGroups(text), ...objects].filter((group) => group.commands.length > 0).map(groupNode));
    select(Math.min(selected, Math.max(0, options.length - 1)));
  }

  function groupNode({ name, commands }) {
    const headingId = uniqueId("group");
    const nodes = commands.map((command) => {
      const node = el(
        "div",
        { role: "option", id: uniqueId("command"), "aria-selected": "false", on: { click: () => run(command), mousemove: () => select(options.findIndex((one) => one.node === node)) } },
        icon(command.icon),
        el("span", {}, command.name),
      );
      options.push({ command, node });
      return node;
    });
    return el("div", { role: "group", "aria-labelledby": headingId }, el("div", { class: "palette-heading", id: headingId, role: "presentation" }, name), nodes);
  }

  function select(index) {
    options[selected]?.node.setAttribute("aria-selected", "false");
    selected = index;
    const node = options[index]?.node;
    if (node === undefined) return input.removeAttribute("aria-activedescendant");
    node.setAttribute("aria-selected", "true");
    node.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", node.id);
  }

  function onKeydown(event) {
    const last = options.length - 1;
    const targets = { ArrowDown: selected >= last ? 0 : selected + 1, ArrowUp: selected <= 0 ? last : selected - 1 };
    if (event.key in targets && last >= 0) select(targets[event.key]);
    else if (event.key !== "Enter" || event.isComposing) return;
    else if (last >= 0) run(options[selected].command);
    else isRunPending = true;
    event.preventDefault();
  }

  function run(command) {
    dialog.close();
    command.run();
  }

  /** A click on the backdrop is a click on the dialog itself. */
  function onClick(event) {
    if (event.target === dialog) dialog.close();
  }

  function onClose() {
    currentSearch.abort();
    dialog.remove();
  }

  document.body.append(dialog);
  dialog.showModal();
  input.focus();
  search();
}
