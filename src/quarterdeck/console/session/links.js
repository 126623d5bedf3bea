// Links in text that agents or other people wrote.

import { el } from "../dom.js";

/** The normalised URL, or null unless it is an HTTP or HTTPS address. */
export function webUrl(text) {
  const url = URL.canParse(text) ? new URL(text) : null;
  return url !== null && (url.protocol === "http:" || url.protocol === "https:") ? url.href : null;
}

export function link(url, ...children) {
  return el("a", { href: url, rel: "noopener noreferrer", target: "_blank" }, children);
}
