// Scales and axis ticks.

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const TIME_STEPS = [
  ...[1, 2, 5, 10, 15, 30].map((n) => n * MINUTE_MS),
  ...[1, 2, 3, 6, 12].map((n) => n * HOUR_MS),
  ...[1, 2, 7].map((n) => n * DAY_MS),
];
const HOURS = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DAYS = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric" });

/** About `count` round numbers from 0 to at least `max`. */
export function valueTicks(max, count, isInteger) {
  const rawStep = max / count;
  const power = 10 ** Math.floor(Math.log10(rawStep || 1));
  const roundStep = [1, 2, 5, 10].map((n) => n * power).find((step) => step >= rawStep) ?? 1;
  const step = isInteger ? Math.max(1, roundStep) : roundStep;
  const ticks = [0];
  while (ticks.at(-1) < max || ticks.length < 2) ticks.push(Number((ticks.length * step).toPrecision(12)));
  return ticks;
}

/** At most `count` round times in the user's time zone: `[[ms, label], …]`. */
export function timeTicks(since, until, count) {
  const step = TIME_STEPS.find((candidate) => (until - since) / candidate <= count) ?? TIME_STEPS.at(-1);
  const offset = new Date(since).getTimezoneOffset() * MINUTE_MS;
  const format = step >= DAY_MS ? DAYS : HOURS;
  const ticks = [];
  for (let at = Math.ceil((since - offset) / step) * step + offset; at <= until; at += step) ticks.push([at, format.format(at)]);
  return ticks;
}

/** A linear function from `[from, to]` to `[start, end]`. */
export function linearScale(from, to, start, end) {
  const slope = to === from ? 0 : (end - start) / (to - from);
  return (value) => start + (value - from) * slope;
}
