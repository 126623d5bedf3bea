// How the pages of skills say things: sizes, people, and text that strangers wrote.

const UNITS = ["bytes", "KB", "MB", "GB"];
// What does not print or is not what it seems: controls, marks of direction, blanks without width, and characters that
// a model reads and a person does not see (tags, spare variation selectors). A tab is none of them.
const UNSEEN = new RegExp(
  "[\\x00-\\x08\\x0a-\\x1f\\x7f-\\x9f\\u00ad\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f" +
    "\\ufeff\\ufff9-\\ufffb\\u{e0000}-\\u{e0fff}]",
  "gu",
);

/** The same text with everything visible: `⟨U+202E⟩`, and `⟨CR⟩` at the end of many a line. */
export function visible(text) {
  return text.replace(UNSEEN, (c) => (c === "\r" ? "⟨CR⟩" : `⟨U+${hex(c.codePointAt(0))}⟩`));
}

function hex(code) {
  return code.toString(16).toUpperCase().padStart(4, "0");
}

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

export function who(actor) {
  return visible(actor.display_name ?? actor.primary_email ?? actor.user_id);
}

/** Which version the sessions use that pin none; null when there is none. */
export function usedVersion(skill) {
  return skill.default_version ?? skill.latest_version;
}
