// Into the clipboard.

import { el } from "./dom.js";

const SAID_MS = 2000;

/** `what` completes "Copy …" for who does not see what it stands beside. */
export function copyButton(text, what) {
  const button = el("button", { class: "small", type: "button", "aria-label": `Copy ${what}`, on: { click: copy } }, "Copy");
  async function copy() {
    const done = await copied(text);
    say(done ? "Copied" : "Select it and copy by hand", done ? `Copied ${what}` : null);
    setTimeout(() => say("Copy", `Copy ${what}`), SAID_MS);
  }
  // A label outweighs the text for who listens: it must say the same.
  function say(word, label) {
    button.textContent = word;
    button.setAttribute("aria-label", label ?? word);
  }
  return el("span", { role: "status" }, button);
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
