// Which files a folder's `.gitignore` and `.skillignore` leave out, by git's own rules (gitignore(5), wildmatch.c). The
// Python client has the same rules, and a test holds the two together.
//
// Patterns match bytes, as git's do: names come here as strings of one character a byte (`asBytes`).

// The later wins, so a `.skillignore` can bring back what a `.gitignore` beside it leaves out.
export const FILES = [".gitignore", ".skillignore"];

const CLASSES = {
  alnum: /[0-9A-Za-z]/,
  alpha: /[A-Za-z]/,
  blank: /[ \t]/,
  cntrl: /[\x00-\x1f\x7f]/,
  digit: /[0-9]/,
  graph: /[!-~]/,
  lower: /[a-z]/,
  print: /[ -~]/,
  punct: /[!-/:-@[-`{-~]/,
  space: /[ \t\n\v\f\r]/,
  upper: /[A-Z]/,
  xdigit: /[0-9A-Fa-f]/,
};
const BOM = "\xef\xbb\xbf";
const NEVER = "(?!)";

/** A pattern that matches nothing. */
class Malformed extends Error {}

export function asBytes(text) {
  return bytesAsText(new TextEncoder().encode(text));
}

/** Not TextDecoder: what it calls latin1 has other characters for 32 of the bytes. */
export function bytesAsText(bytes) {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return text;
}

/** `rules`: `{base, patterns}`, those of the root first. Whoever asks has asked about the folders above before. */
export function isLeftOut(rules, path, isFolder) {
  for (const each of rules.toReversed()) {
    const verdict = verdictOf(each, path, isFolder);
    if (verdict !== null) return verdict;
  }
  return false;
}

/** `base` is the folder that the patterns lie in, with a closing slash, or empty. null: nothing here speaks of it. */
function verdictOf({ base, patterns }, path, isFolder) {
  const below = path.slice(base.length);
  const name = path.slice(path.lastIndexOf("/") + 1);
  for (const pattern of patterns.toReversed()) {
    if (pattern.foldersOnly && !isFolder) continue;
    if (pattern.regex.test(pattern.anchored ? below : name)) return !pattern.negated;
  }
  return null;
}

export function readPatterns(text) {
  const lines = (text.startsWith(BOM) ? text.slice(BOM.length) : text).split("\n");
  return lines.map((line) => patternOf(line.endsWith("\r") ? line.slice(0, -1) : line)).filter((one) => one !== null);
}

function patternOf(given) {
  if (given.startsWith("#")) return null;
  let line = withoutTrailingBlanks(given);
  const negated = line.startsWith("!");
  if (negated) line = line.slice(1);
  const foldersOnly = line.endsWith("/");
  if (foldersOnly) line = line.slice(0, -1);
  if (line === "") return null;
  try {
    const source = translated(line.startsWith("/") ? line.slice(1) : line);
    return { regex: new RegExp(`^(?:${source})$`, "s"), negated, foldersOnly, anchored: line.includes("/") };
  } catch (fault) {
    if (fault instanceof Malformed) return null;
    throw fault;
  }
}

/** A blank behind a backslash stays. */
function withoutTrailingBlanks(line) {
  let end = 0;
  for (let at = 0; at < line.length;) {
    if (line[at] === "\\") {
      at += 2;
      end = Math.min(at, line.length);
    } else {
      at += 1;
      if (line[at - 1] !== " ") end = at;
    }
  }
  return line.slice(0, end);
}

/** The same as a regular expression. */
function translated(pattern) {
  let out = "";
  for (let at = 0; at < pattern.length;) {
    let piece;
    if (pattern[at] === "*") [piece, at] = stars(pattern, at);
    else if (pattern[at] === "?") [piece, at] = ["[^/]", at + 1];
    else if (pattern[at] === "[") [piece, at] = bracket(pattern, at);
    else if (pattern[at] === "\\") {
      if (at + 1 === pattern.length) throw new Malformed();
      [piece, at] = [escaped(pattern.charCodeAt(at + 1)), at + 2];
    } else [piece, at] = [escaped(pattern.charCodeAt(at)), at + 1];
    out += piece;
  }
  return out;
}

function escaped(byte) {
  return `\\x${byte.toString(16).padStart(2, "0")}`;
}

function stars(pattern, at) {
  let end = at;
  while (pattern[end] === "*") end += 1;
  const rest = pattern.slice(end);
  // git first takes off what needs no matching, and so sees the stars of `a**/b` at the beginning too.
  const alone = pattern[at - 1] === "/" || !/[*?[\\]/.test(pattern.slice(0, at));
  if (end - at >= 2 && alone) {
    if (rest === "") return [".*", end];
    if (rest.startsWith("/")) return ["(?:.*/)?", end + 1];
    if (rest.startsWith("\\/")) return [".*", end];
  }
  return ["[^/]*", end];
}

/** A class as the list of its bytes. It never matches a slash. */
function bracket(pattern, start) {
  let at = start + 1;
  const negated = pattern[at] === "!" || pattern[at] === "^";
  if (negated) at += 1;
  const found = new Set();
  // The byte that a range may begin with.
  let previous = null;
  for (let first = true; first || pattern[at] !== "]"; first = false) {
    const named = pattern.startsWith("[:", at) ? namedClass(pattern, at) : null;
    if (named !== null) {
      named.members.forEach((byte) => found.add(byte));
      [previous, at] = [null, named.end];
    } else if (pattern[at] === "-" && previous !== null && ![undefined, "]"].includes(pattern[at + 1])) {
      const [last, end] = member(pattern, at + 1);
      for (let byte = previous; byte <= last; byte += 1) found.add(byte);
      [previous, at] = [null, end];
    } else {
      [previous, at] = member(pattern, at);
      found.add(previous);
    }
  }
  const slash = "/".charCodeAt(0);
  const allowed = Array.from({ length: 256 }, (_, byte) => byte).filter(
    (byte) => found.has(byte) !== negated && byte !== slash,
  );
  return [allowed.length === 0 ? NEVER : `[${allowed.map(escaped).join("")}]`, at + 1];
}

function member(pattern, given) {
  const at = pattern[given] === "\\" ? given + 1 : given;
  if (at >= pattern.length) throw new Malformed();
  return [pattern.charCodeAt(at), at + 1];
}

/** `[:alpha:]` inside of a class; null when it only begins like one. */
function namedClass(pattern, at) {
  const end = pattern.indexOf("]", at + 2);
  if (end < 0) throw new Malformed();
  if (end - at < 3 || pattern[end - 1] !== ":") return null;
  const name = pattern.slice(at + 2, end - 1);
  if (!Object.hasOwn(CLASSES, name)) throw new Malformed();
  const members = Array.from({ length: 128 }, (_, byte) => byte).filter((byte) =>
    CLASSES[name].test(String.fromCharCode(byte)),
  );
  return { members, end: end + 1 };
}
