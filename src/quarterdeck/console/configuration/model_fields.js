// The model of an agent or a session, and its settings.

import { get } from "../api.js";
import { field } from "../dialogs.js";
import { el, fill, uniqueId } from "../dom.js";

const EFFORTS = [["", "Default"], ["low", "Low"], ["medium", "Medium"], ["high", "High"]];

/** Suggests the configured models; other names can be typed. */
export function modelField(model, signal) {
  const list = el("datalist", { id: uniqueId("models") });
  const attributes = { name: "model", list: list.id, maxlength: 200, autocomplete: "off", spellcheck: "false" };
  const input = el("input", { ...attributes, placeholder: "Default model", value: model ?? "" });
  get("/models", {}, signal).then(
    ({ default: name, items }) => {
      input.placeholder = `Default (${name})`;
      fill(list, items.map((one) => el("option", { value: one.model })));
    },
    () => {}, // The field still works without suggestions.
  );
  const node = field("Model", input, "Choose a model from the list or enter its name. Leave empty to use the default model.");
  node.append(list);
  return node;
}

/** Names of models, one a line. */
export function fallbacksField(names) {
  const input = el("textarea", { name: "fallback_models", rows: 2, spellcheck: "false", value: names.join("\n") });
  return field("Fallbacks", input, "Names of models, one per line. While the model is not available, the first of them that is answers.");
}

export function fallbacksValue(data) {
  return data.get("fallback_models").split("\n").map((name) => name.trim()).filter(Boolean);
}

export function settingsFields({ temperature = null, max_output_tokens: maxTokens = null, reasoning_effort: effort = null }) {
  const number = (name, value, attributes) => el("input", { type: "number", name, value: value ?? "", placeholder: "Default", ...attributes });
  const options = EFFORTS.map(([value, label]) => el("option", { value, selected: value === (effort ?? "") }, label));
  return el(
    "div",
    { class: "model-settings" },
    field("Temperature", number("temperature", temperature, { min: 0, max: 2, step: "any" })),
    field("Max output tokens", number("max_output_tokens", maxTokens, { min: 1, step: 1 })),
    field("Reasoning effort", el("select", { name: "reasoning_effort" }, options)),
  );
}

export function settingsValue(data) {
  const number = (name) => (data.get(name) === "" ? null : Number(data.get(name)));
  return {
    temperature: number("temperature"),
    max_output_tokens: number("max_output_tokens"),
    reasoning_effort: data.get("reasoning_effort") || null,
  };
}
