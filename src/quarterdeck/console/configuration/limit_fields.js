// Limits of cost and tokens: form fields, values and text.

import { field } from "../dialogs.js";
import { el } from "../dom.js";
import { formatCost } from "../usage/usage_text.js";

const MAX = 1e9;

/** Fields for one limit. `name` is the prefix of their names in the form. */
export function limitFields(name, legend, { max_cost_usd: cost, max_tokens: tokens }, hint = null) {
  const number = (key, value, attributes) =>
    el("input", { type: "number", name: `${name}.${key}`, value: value ?? "", placeholder: "No limit", ...attributes });
  return el(
    "fieldset",
    { class: "limits" },
    el("legend", {}, legend),
    el(
      "div",
      { class: "model-settings" },
      field("Cost in USD", number("max_cost_usd", cost, { min: 0.000001, max: MAX, step: "any" })),
      field("Tokens", number("max_tokens", tokens, { min: 1, step: 1 })),
    ),
    hint && el("p", { class: "hint" }, hint),
  );
}

/** The limit that the fields of a form contain. */
export function limitValues(data, name) {
  const number = (key) => (data.get(`${name}.${key}`) === "" ? null : Number(data.get(`${name}.${key}`)));
  return { max_cost_usd: number("max_cost_usd"), max_tokens: number("max_tokens") };
}

/** `$5.00, 100,000 tokens`, or null if there is no limit. */
export function limitText({ max_cost_usd: cost, max_tokens: tokens }) {
  const parts = [cost !== null && formatCost(cost), tokens !== null && `${tokens.toLocaleString("en")} tokens`].filter(Boolean);
  return parts.length === 0 ? null : parts.join(", ");
}
