// A JSON object that can be read and edited.

import { el, fill, uniqueId } from "../dom.js";
import { visibleJson, visibleLines } from "../visible_text.js";
import { prettyJson } from "./labels.js";

const MIN_ROWS = 3;
const MAX_ROWS = 16;

/**
 * Shows the object, with a button to edit it if `onChange` is given; `onChange()` is called with each edit. Invisible
 * characters are shown as codes, and as escapes in the text to edit. `reportValidity()` is false if the text is no JSON object.
 * `changed()` returns the new object, undefined if it is the same.
 */
export function jsonField(label, original, onChange = null) {
  const shown = prettyJson(original);
  const text = visibleJson(shown);
  const headingId = uniqueId("json");
  const errorNode = el("p", { class: "json-error", id: uniqueId("json-error"), role: "status" });
  const area = el("textarea", {
    class: "mono", value: text, spellcheck: "false", autocomplete: "off", "aria-labelledby": headingId, "aria-describedby": errorNode.id,
    on: { input: onInput },
  });
  const container = el("div", {}, el("pre", { tabindex: "0", role: "region", "aria-labelledby": headingId }, visibleLines(shown)));
  const edit = el("button", { type: "button", class: "small", on: { click: startEditing } }, "Edit");
  const undo = el("button", { type: "button", class: "small", hidden: true, on: { click: undoEdits } }, "Undo changes");

  function startEditing() {
    edit.hidden = true;
    resize();
    fill(container, area, errorNode);
    area.focus();
  }

  function undoEdits() {
    area.value = text;
    onInput();
    area.focus();
  }

  function onInput() {
    const problem = problemOf(area.value);
    errorNode.textContent = problem ?? "";
    area.setAttribute("aria-invalid", String(problem !== null));
    undo.hidden = area.value === text;
    resize();
    onChange();
  }

  function resize() {
    area.rows = Math.min(MAX_ROWS, Math.max(MIN_ROWS, area.value.split("\n").length));
  }

  return {
    node: el("div", { class: "json-field" }, el("div", { class: "json-head" }, el("h4", { id: headingId }, label), onChange && [edit, undo]), container),
    get isChanged() {
      return isChanged(area.value, original);
    },
    reportValidity() {
      const isValid = problemOf(area.value) === null;
      if (!isValid) area.focus();
      return isValid;
    },
    changed() {
      return isChanged(area.value, original) ? JSON.parse(area.value) : undefined;
    },
  };
}

/** Text that is not JSON counts as changed. */
function isChanged(text, original) {
  return problemOf(text) !== null || JSON.stringify(JSON.parse(text)) !== JSON.stringify(original);
}

function problemOf(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? null : "Enter a JSON object: { … }.";
  } catch (error) {
    return `Invalid JSON: ${error.message}`;
  }
}
