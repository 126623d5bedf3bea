// The expiry of a new key, limited by the workspace and by the key of the user.

import { field } from "../dialogs.js";
import { el } from "../dom.js";
import { formatDateTime } from "../time_format.js";

const DAY_MS = 86_400_000;
// The server measures the maximum lifetime with its own clock when the request arrives.
const CLOCK_SKEW_MS = 120_000;
/** @type {[number, string][]} */
const LIFETIMES = [
  [7, "7 days"],
  [30, "30 days"],
  [90, "90 days"],
  [365, "1 year"],
];
const DEFAULT_DAYS = "90";

/** The latest allowed expiry in milliseconds, or null if there is no limit. */
export function expiryLimit(maxDays, callerExpiresAt, now) {
  const limits = [];
  if (maxDays !== null) limits.push(now + maxDays * DAY_MS - CLOCK_SKEW_MS);
  if (callerExpiresAt !== null) limits.push(new Date(callerExpiresAt).getTime());
  return limits.length > 0 ? Math.min(...limits) : null;
}

/** `{node, value(formData)}`; `value` returns an ISO date or null for a key that never expires. */
export function expiryField(limit, hint, now) {
  const lifetimes = LIFETIMES.filter(([days]) => limit === null || now + days * DAY_MS <= limit);
  const isDefaultAllowed = lifetimes.some(([days]) => String(days) === DEFAULT_DAYS);
  const selected = isDefaultAllowed ? DEFAULT_DAYS : limit === null ? "never" : "latest";
  const option = (value, label) => el("option", { value, selected: value === selected }, label);
  const select = el(
    "select",
    { name: "expiry", on: { change: toggleDate } },
    lifetimes.map(([days, label]) => option(String(days), `In ${label}`)),
    limit !== null && option("latest", `Latest allowed: ${formatDateTime(limit)}`),
    option("date", "Custom date…"),
    limit === null && option("never", "Never"),
  );
  const date = el("input", { type: "date", name: "date", min: localDate(now), max: limit === null ? null : localDate(limit) });
  const dateField = el("div", { hidden: true }, field("Last day", date, "The key is valid until the end of this day."));

  function toggleDate() {
    dateField.hidden = select.value !== "date";
    date.required = !dateField.hidden;
  }

  return {
    node: [field("Expires", select, hint), dateField],
    value(data) {
      const choice = data.get("expiry");
      if (choice === "never") return null;
      if (choice === "latest") return new Date(limit).toISOString();
      if (choice === "date") return endOfDay(data.get("date"), limit).toISOString();
      return new Date(now + Number(choice) * DAY_MS).toISOString();
    },
  };
}

/** `YYYY-MM-DD` in the user's time zone. */
function localDate(ms) {
  const date = new Date(ms);
  return `${date.getFullYear()}-${String(date.getMonth() + 1).padStart(2, "0")}-${String(date.getDate()).padStart(2, "0")}`;
}

function endOfDay(day, limit) {
  const end = new Date(`${day}T23:59:59`);
  return limit === null || end.getTime() <= limit ? end : new Date(limit);
}
