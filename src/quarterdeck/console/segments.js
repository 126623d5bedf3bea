// A segmented control: a choice of a few values in a row.

import { el, uniqueId } from "./dom.js";

/** `choices`: `[value, label]`. Returns `{node, value(), select(value)}`; `onChange()` is called after the user has chosen. */
export function segments(legend, choices, selected, onChange) {
  const name = uniqueId("segments");
  const radios = choices.map(([value]) => el("input", { type: "radio", name, value: String(value), id: uniqueId("segment"), checked: String(value) === String(selected), on: { change: onChange } }));
  if (!radios.some((radio) => radio.checked)) radios[0].checked = true;
  const labels = choices.map(([, label], index) => el("label", { for: radios[index].id }, label));
  return {
    node: el("fieldset", { class: "segments" }, el("legend", { class: "visually-hidden" }, legend), radios.map((radio, index) => el("span", {}, radio, labels[index]))),
    value: () => radios.find((radio) => radio.checked).value,
    /** Does not call `onChange()`. */
    select: (value) => { for (const radio of radios) radio.checked = radio.value === value; },
  };
}
