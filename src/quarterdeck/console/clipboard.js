// The Copy button.

import { el } from "./dom.js";

const STATUS_MS = 2000;

/** `what` completes the accessible name "Copy …". */
export function copyButton(text, what, label = "Copy") {
  const status = el("span", { class: "muted small-text", role: "status" });
  async function copy() {
    try {
      // Only available over HTTPS and on localhost.
      await navigator.clipboard.writeText(text);
      status.textContent = " Copied";
    } catch {
      status.textContent = " Select the text to copy it";
    }
    setTimeout(() => { status.textContent = ""; }, STATUS_MS);
  }
  const attributes = { class: "small", type: "button", "aria-label": `Copy ${what}`, on: { click: copy } };
  return el("span", {}, el("button", attributes, label), status);
}
