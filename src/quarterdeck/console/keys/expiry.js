// How long a new key lives: choices that the workspace and the key one is signed in with allow.

import { field } from "../dialogs.js";
import { el } from "../dom.js";
import { exact } from "../times.js";

const DAY_MS = 86_400_000;
// The workspace counts its days from when the request arrives, by the server's clock.
const CLOCKS_DIFFER_MS = 120_000;
const SPANS = [
  [7, "7 days"],
  [30, "30 days"],
  [90, "90 days"],
  [365, "1 year"],
];
const USUAL_DAYS = "90";

/** The last moment that is allowed, or null for none. `maxDays` is the workspace's, `callerEnds` that of the key in use. */
export function limitOf(maxDays, callerEnds, now) {
  const limits = [];
  if (maxDays !== null) limits.push(now + maxDays * DAY_MS - CLOCKS_DIFFER_MS);
  if (callerEnds !== null) limits.push(new Date(callerEnds).getTime());
  return limits.length > 0 ? Math.min(...limits) : null;
}

/** `{node, chosen(data)}`; `chosen` reads a FormData and gives a moment or null for never. */
export function expiryChoice(limit, why, now) {
  const spans = SPANS.filter(([days]) => limit === null || now + days * DAY_MS <= limit);
  const usual = spans.some(([days]) => String(days) === USUAL_DAYS) ? USUAL_DAYS : limit === null ? "never" : "longest";
  const select = el(
    "select",
    { name: "expiry", on: { change: turn } },
    spans.map(([days, words]) => option(String(days), `In ${words}`)),
    limit !== null && option("longest", `As late as allowed: ${exact(limit)}`),
    option("date", "On a date…"),
    limit === null && option("never", "Never"),
  );
  const date = el("input", { type: "date", name: "date", min: dayOf(now), max: limit === null ? null : dayOf(limit) });
  const below = el("div", { hidden: true }, field("Last day", date, "It works until the end of this day."));

  function option(value, words) {
    return el("option", { value, selected: value === usual }, words);
  }

  function turn() {
    below.hidden = select.value !== "date";
    date.required = !below.hidden;
  }

  return {
    node: [field("Expires", select, why), below],
    chosen(data) {
      const choice = data.get("expiry");
      if (choice === "never") return null;
      if (choice === "longest") return new Date(limit).toISOString();
      if (choice === "date") return endOf(data.get("date"), limit).toISOString();
      return new Date(now + Number(choice) * DAY_MS).toISOString();
    },
  };
}

/** As the person's calendar has it. */
function dayOf(ms) {
  const at = new Date(ms);
  return `${at.getFullYear()}-${String(at.getMonth() + 1).padStart(2, "0")}-${String(at.getDate()).padStart(2, "0")}`;
}

function endOf(day, limit) {
  const end = new Date(`${day}T23:59:59`);
  return limit === null || end.getTime() <= limit ? end : new Date(limit);
}
