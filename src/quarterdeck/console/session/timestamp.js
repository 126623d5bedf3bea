// The time of an entry, shown while the pointer or the focus is on it.

import { el } from "../dom.js";
import { formatDateTime } from "../time_format.js";

const TIME = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const DAY_AND_TIME = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "numeric", minute: "2-digit" });

/** Not a `<time>` element: those show relative times and are updated regularly. */
export function timestamp(at) {
  if (at === null) return null;
  const date = new Date(at);
  const isToday = date.toDateString() === new Date().toDateString();
  return el("span", { class: "at", title: formatDateTime(at) }, (isToday ? TIME : DAY_AND_TIME).format(date));
}
