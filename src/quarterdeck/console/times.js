// Moments as people say them. The exact one is behind each, for who points at it.

import { el } from "./dom.js";

const STEPS = [
  [60, "second"],
  [60, "minute"],
  [24, "hour"],
  [7, "day"],
  [4.35, "week"],
  [12, "month"],
  [Infinity, "year"],
];
const WORDS = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const EXACT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const REFRESH_MS = 20_000;

function ago(moment, now = Date.now()) {
  let span = (new Date(moment).getTime() - now) / 1000;
  if (Math.abs(span) < 5) return "just now";
  for (const [length, unit] of STEPS) {
    if (Math.abs(span) < length) return WORDS.format(Math.round(span), unit);
    span /= length;
  }
  return "";
}

export function exact(moment) {
  return EXACT.format(new Date(moment));
}

/** `missing` is shown for a moment that is null. */
export function when(moment, missing = "never") {
  if (moment === null) return el("span", { class: "quiet" }, missing);
  return el("time", { datetime: moment, title: exact(moment), class: "ago" }, ago(moment));
}

/** `1.2 s`, `3 min 20 s`. */
export function span(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  return seconds < 3600 ? `${Math.floor(seconds / 60)} min ${seconds % 60} s` : `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

setInterval(() => {
  for (const node of document.querySelectorAll("time.ago")) node.textContent = ago(node.dateTime);
}, REFRESH_MS);
