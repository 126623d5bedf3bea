// Into the clipboard.

import { el } from "./dom.js";

const SAID_MS = 2000;

/** `what` completes "Copy …" for who does not see what it stands beside. */
export function copyButton(text, what) {
  const said = el("span", { class: "quiet small-text", role: "status" });
  async function copy() {
    said.textContent = (await copied(text)) ? " Copied" : " Select it and copy by hand";
    setTimeout(() => { said.textContent = ""; }, SAID_MS);
  }
  return el("span", {}, el("button", { class: "small", type: "button", "aria-label": `Copy ${what}`, on: { click: copy } }, "Copy"), said);
}

async function copied(text) {
  try {
    // Browsers offer it to pages over HTTPS and of this machine only.
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
