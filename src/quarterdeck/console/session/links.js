// Links in what others wrote.

import { el } from "../dom.js";

/** As it may be linked to, or null: pages of the web only. */
export function webAddress(text) {
  const url = URL.canParse(text) ? new URL(text) : null;
  return url !== null && (url.protocol === "http:" || url.protocol === "https:") ? url.href : null;
}

export function link(address, ...children) {
  return el("a", { href: address, rel: "noopener noreferrer", target: "_blank" }, children);
}
