// Texts of any length, shown so that they neither freeze the page nor hide what comes after them.

import { el, fill } from "../dom.js";

export const SHOWN_CHARACTERS = 20_000;

/** `make(text)` gives nodes. Of a long text only the beginning is shown until one asks for all of it. */
export function longText(text, make) {
  if (text.length <= SHOWN_CHARACTERS) return make(text);
  const place = el("div", {});
  const showAll = () => {
    fill(place, make(text));
    place.tabIndex = -1;
    place.focus({ preventScroll: true });
  };
  const offer = `Show all ${text.length.toLocaleString("en")} characters`;
  const more = el("button", { type: "button", class: "small", on: { click: showAll } }, offer);
  return fill(place, make(beginning(text)), el("p", { class: "cut" }, "… ", more));
}

/** Never half of a character that takes two places. */
function beginning(text) {
  const last = text.charCodeAt(SHOWN_CHARACTERS - 1);
  return text.slice(0, last >= 0xd800 && last < 0xdc00 ? SHOWN_CHARACTERS - 1 : SHOWN_CHARACTERS);
}
