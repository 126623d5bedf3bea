// Dates, relative times and durations as text.

import { el } from "./dom.js";

/** @type {[number, Intl.RelativeTimeFormatUnit][]} */
const UNITS = [
  [60, "second"],
  [60, "minute"],
  [24, "hour"],
  [7, "day"],
  [4.35, "week"],
  [12, "month"],
  [Infinity, "year"],
];
const RELATIVE = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const DATE_TIME = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const REFRESH_MS = 20_000;

function relativeText(time) {
  let distance = (new Date(time).getTime() - Date.now()) / 1000;
  if (Math.abs(distance) < 5) return "just now";
  for (const [length, unit] of UNITS) {
    if (Math.abs(distance) < length) return RELATIVE.format(Math.round(distance), unit);
    distance /= length;
  }
  return "";
}

export function formatDateTime(time) {
  return DATE_TIME.format(new Date(time));
}

/** A `<time>` element such as "2 hours ago" with the date as its tooltip. `missing` is shown if the time is null. */
export function relativeTime(time, missing = "Never") {
  if (time === null) return el("span", { class: "muted" }, missing);
  return el("time", { datetime: time, title: formatDateTime(time) }, relativeText(time));
}

/** `1.2 s`, `3 min 20 s`. */
export function formatDuration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  return seconds < 3600 ? `${Math.floor(seconds / 60)} min ${seconds % 60} s` : `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

setInterval(() => {
  for (const node of document.querySelectorAll("time")) node.textContent = relativeText(node.dateTime);
}, REFRESH_MS);
