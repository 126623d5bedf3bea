// Where the marks of an axis stand.

const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const TIME_STEPS = [1, 2, 5, 10, 15, 30].map((n) => n * MINUTE_MS).concat([1, 2, 3, 6, 12].map((n) => n * HOUR_MS), [1, 2, 7].map((n) => n * DAY_MS));
const HOURS = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DAYS = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric" });

/** Round numbers from 0 to at least `highest`, about `count` of them. */
export function valueMarks(highest, count, isWhole) {
  const rough = highest / count;
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  const found = [1, 2, 5, 10].map((n) => n * power).find((step) => step >= rough) ?? 1;
  const step = isWhole ? Math.max(1, found) : found;
  const marks = [0];
  while (marks.at(-1) < highest || marks.length < 2) marks.push(Number((marks.length * step).toPrecision(12)));
  return marks;
}

/** Round moments of the person's clock between two, at most `count` of them: `[[ms, words], …]`. */
export function timeMarks(since, until, count) {
  const step = TIME_STEPS.find((one) => (until - since) / one <= count) ?? TIME_STEPS.at(-1);
  const shift = new Date(since).getTimezoneOffset() * MINUTE_MS;
  const words = step >= DAY_MS ? DAYS : HOURS;
  const marks = [];
  for (let at = Math.ceil((since - shift) / step) * step + shift; at <= until; at += step) marks.push([at, words.format(at)]);
  return marks;
}

/** A function from `[from, to]` to `[start, end]`. */
export function linear(from, to, start, end) {
  const share = to === from ? 0 : (end - start) / (to - from);
  return (value) => start + (value - from) * share;
}
