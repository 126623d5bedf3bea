// Text that strangers wrote, so that one sees what is in it.

// What does not print or is not what it seems: controls, marks of direction, blanks without width, and characters that
// a model reads and a person does not see (tags, spare variation selectors, fillers). A tab is none of them.
const UNSEEN = new RegExp(
  "[\\x00-\\x08\\x0a-\\x1f\\x7f-\\x9f\\u00ad\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f" +
    "\\u115f\\u1160\\u2800\\u3164\\uffa0\\ufeff\\ufff9-\\ufffb\\u{e0000}-\\u{e0fff}]",
  "gu",
);

/** The same text with everything visible: `⟨U+202E⟩`, and `⟨CR⟩` at the end of many a line. */
export function visible(text) {
  return text.replace(UNSEEN, (c) => (c === "\r" ? "⟨CR⟩" : `⟨U+${hex(c.codePointAt(0))}⟩`));
}

/** The same of a name, which may be of blanks alone: it stands in links and on buttons. */
export function named(text) {
  return text.trim() === "" ? "⟨blank⟩" : visible(text);
}

function hex(code) {
  return code.toString(16).toUpperCase().padStart(4, "0");
}
