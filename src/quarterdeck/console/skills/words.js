// How the pages of skills say things: sizes, numbers, versions.

const UNITS = ["bytes", "KB", "MB", "GB"];

/** `512 bytes`, `3.4 KB`. */
export function bytes(count) {
  let unit = 0;
  let amount = count;
  while (amount >= 1024 && unit < UNITS.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  if (unit === 0) return count === 1 ? "1 byte" : `${count} bytes`;
  return `${amount.toFixed(amount < 100 ? 1 : 0)} ${UNITS[unit]}`;
}

/** `1 file`, `1,200 files`. */
export function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** Which version the sessions use that pin none; null when there is none. */
export function usedVersion(skill) {
  return skill.default_version ?? skill.latest_version;
}
