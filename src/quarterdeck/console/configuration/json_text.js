// A form field for JSON. The browser refuses to submit text that is not valid.

import { field } from "../dialogs.js";
import { el } from "../dom.js";
import { prettyJson } from "../inbox/labels.js";
import { visibleJson } from "../visible_text.js";

const MIN_ROWS = 3;
const MAX_ROWS = 18;
const KINDS = {
  array: ["Enter a JSON array: [ … ].", (value) => Array.isArray(value)],
  object: ["Enter a JSON object: { … }.", (value) => typeof value === "object" && value !== null && !Array.isArray(value)],
};

/** `value`: shown as an empty field if it is null. `kind`: `array` or `object`. */
export function jsonTextField(label, name, value, kind, hint) {
  const area = el("textarea", {
    class: "mono", name, value: value === null ? "" : visibleJson(prettyJson(value)), spellcheck: "false", autocomplete: "off",
    on: { input: onInput },
  });
  function onInput() {
    area.setCustomValidity(problemOf(area.value, kind) ?? "");
    area.rows = Math.min(MAX_ROWS, Math.max(MIN_ROWS, area.value.split("\n").length));
  }
  onInput();
  return field(label, area, hint);
}

/** `empty`: the value of an empty field. */
export function jsonTextValue(data, name, empty) {
  const text = data.get(name).trim();
  return text === "" ? empty : JSON.parse(text);
}

function problemOf(text, kind) {
  if (text.trim() === "") return null;
  const [message, isKind] = KINDS[kind];
  try {
    return isKind(JSON.parse(text)) ? null : message;
  } catch (error) {
    return `Invalid JSON: ${error.message}`;
  }
}
