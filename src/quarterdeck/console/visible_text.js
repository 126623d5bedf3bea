// Makes invisible characters visible in names and text that other people or agents wrote.

// Control characters, direction marks, zero-width characters, and characters that models read but people do not see
// (tags, variation selectors, fillers). Tabs are allowed.
const INVISIBLE = new RegExp(
  "[\\x00-\\x08\\x0a-\\x1f\\x7f-\\x9f\\u00ad\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f" +
    "\\u115f\\u1160\\u2800\\u3164\\uffa0\\ufeff\\ufff9-\\ufffb\\u{e0000}-\\u{e0fff}]",
  "gu",
);

/** Replaces invisible characters with their code: `⟨U+202E⟩`, `⟨CR⟩`. */
export function visibleText(text) {
  return text.replace(INVISIBLE, (c) => (c === "\r" ? "⟨CR⟩" : `⟨U+${hex(c.codePointAt(0))}⟩`));
}

/** JSON with an escape for each invisible character: the same value. */
export function visibleJson(json) {
  const escape = (c) => [...Array(c.length).keys()].map((index) => `\\u${c.charCodeAt(index).toString(16).padStart(4, "0")}`).join("");
  return json.split("\n").map((line) => line.replace(INVISIBLE, escape)).join("\n");
}

/** Line breaks stay. */
export function visibleLines(text) {
  return text.split("\n").map(visibleText).join("\n");
}

/** For names, which are used in links and buttons and must not be empty. */
export function visibleName(text) {
  return text.trim() === "" ? "⟨blank⟩" : visibleText(text);
}

function hex(code) {
  return code.toString(16).toUpperCase().padStart(4, "0");
}
