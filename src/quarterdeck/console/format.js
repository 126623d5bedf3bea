// Numbers, sizes and words as text.

const UNITS = ["bytes", "KB", "MB", "GB"];

/** `512 bytes`, `3.4 KB`. */
export function formatBytes(bytes) {
  let unit = 0;
  let amount = bytes;
  while (amount >= 1024 && unit < UNITS.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  if (unit === 0) return pluralize(bytes, "byte");
  return `${amount.toFixed(amount < 100 ? 1 : 0)} ${UNITS[unit]}`;
}

/** `1 file`, `1,200 files`. */
export function pluralize(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** The label of a run's state. */
export function runStateName(state) {
  return state === "succeeded" ? "Completed" : capitalize(state);
}

/** `running` → `Running`. */
export function capitalize(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
