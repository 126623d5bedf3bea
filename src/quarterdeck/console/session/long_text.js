// Truncates long texts so that they do not block the page.

import { el, fill } from "../dom.js";

export const MAX_CHARACTERS = 20_000;

/** Shows the start of a long text with a button for the rest. `render(text)` returns nodes. */
export function longText(text, render) {
  if (text.length <= MAX_CHARACTERS) return render(text);
  const container = el("div", {});
  const showAll = () => {
    fill(container, render(text));
    container.tabIndex = -1;
    container.focus({ preventScroll: true });
  };
  const label = `Show all ${text.length.toLocaleString("en")} characters`;
  const button = el("button", { type: "button", class: "small", on: { click: showAll } }, label);
  return fill(container, render(start(text)), el("p", { class: "truncated" }, "… ", button));
}

/** Does not split a surrogate pair. */
function start(text) {
  const last = text.charCodeAt(MAX_CHARACTERS - 1);
  return text.slice(0, last >= 0xd800 && last < 0xdc00 ? MAX_CHARACTERS - 1 : MAX_CHARACTERS);
}
