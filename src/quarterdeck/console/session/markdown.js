// Markdown as agents write it, made of elements: headings, lists, quotes, code, and what stands in a line. No markup of
// the text's own gets through, nothing is loaded, and the time it takes grows with its length only.

import { el } from "../dom.js";
import { inline } from "./inline.js";

// A text that would be made of more is shown as plain text from there on.
const MOST_ELEMENTS = 4000;
const MOST_DEPTH = 6;
const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`\s]*)/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(\S.*)$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,40})([-*+]|\d{1,9}[.)])(?:[ \t]+|$)/;
// Beyond it a line is text: no heading is that long, and the patterns above are spared.
const LONGEST_MARKED_LINE = 5000;

export function markdown(text) {
  const budget = { left: MOST_ELEMENTS };
  return blocks(text.replaceAll("\r\n", "\n").split("\n"), budget, 0);
}

function blocks(lines, budget, depth) {
  const found = [];
  let at = 0;
  while (at < lines.length && budget.left > 0) {
    const taken = depth < MOST_DEPTH ? block(lines, at, budget, depth) : null;
    const [node, next] = taken ?? paragraph(lines, at, budget, depth);
    if (node !== null) {
      found.push(node);
      budget.left -= 1;
    }
    at = next;
  }
  if (at < lines.length) found.push(el("p", {}, lines.slice(at).join("\n")));
  return found;
}

/** The block that begins with a mark at this line, and the line behind it; null if none does. */
function block(lines, at, budget, depth) {
  const line = lines[at];
  if (line.length > LONGEST_MARKED_LINE) return null;
  const fence = FENCE.exec(line);
  if (fence) return code(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) {
    // The page has the first two levels.
    const level = Math.min(heading[1].length + 2, 6);
    return [el(`h${level}`, {}, inline(heading[2].replace(/[ \t]#+[ \t]*$/, ""), budget)), at + 1];
  }
  if (RULE.test(line)) return [el("hr"), at + 1];
  if (QUOTE.test(line)) return quote(lines, at, budget, depth);
  return ITEM.test(line) ? list(lines, at, budget, depth) : null;
}

function code(lines, at, [, mark]) {
  let end = at + 1;
  while (end < lines.length && !closes(lines[end], mark)) end += 1;
  const inside = lines.slice(at + 1, end).join("\n");
  return [el("pre", { tabindex: "0" }, el("code", {}, inside)), end + 1];
}

function closes(line, mark) {
  const text = line.trim();
  return text.length >= mark.length && text.startsWith(mark) && text === mark[0].repeat(text.length);
}

function quote(lines, at, budget, depth) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  const inside = lines.slice(at, end).map((line) => line.replace(QUOTE, ""));
  return [el("blockquote", {}, blocks(inside, budget, depth + 1)), end];
}

function list(lines, at, budget, depth) {
  const [, indent, mark] = ITEM.exec(lines[at]);
  const isNumbered = /\d/.test(mark);
  const items = [];
  let next = at;
  while (next < lines.length && budget.left > 0 && begins(lines[next], indent.length, isNumbered)) {
    const end = itemEnd(lines, next, indent.length);
    items.push(el("li", {}, item(lines.slice(next, end), budget, depth)));
    budget.left -= 1;
    next = end;
  }
  const start = isNumbered ? Number.parseInt(mark, 10) : null;
  return [el(isNumbered ? "ol" : "ul", { start: start === 1 ? null : start }, items), next];
}

function begins(line, indent, isNumbered) {
  const found = line.length > LONGEST_MARKED_LINE ? null : ITEM.exec(line);
  return found !== null && found[1].length <= indent + 1 && /\d/.test(found[2]) === isNumbered;
}

/** What is indented deeper belongs to the item, also behind an empty line. */
function itemEnd(lines, at, indent) {
  let end = at + 1;
  while (end < lines.length) {
    const isBlank = lines[end].trim() === "";
    const following = isBlank ? lines[end + 1] : lines[end];
    if (following === undefined || following.trim() === "" || indentOf(following) <= indent) break;
    end += 1;
  }
  return end;
}

function indentOf(line) {
  return line.length - line.trimStart().length;
}

function item(lines, budget, depth) {
  const width = ITEM.exec(lines[0])[0].length;
  const rest = lines.slice(1);
  const indents = rest.filter((line) => line.trim() !== "").map(indentOf);
  const inner = indents.reduce((least, one) => Math.min(least, one), width);
  const inside = [lines[0].slice(width), ...rest.map((line) => line.slice(inner))];
  return tight(blocks(inside, budget, depth + 1));
}

/** A list of lines has no paragraphs in it. */
function tight(nodes) {
  if (nodes[0]?.tagName !== "P") return nodes;
  return [...nodes[0].childNodes, ...nodes.slice(1)];
}

/** Lines up to an empty one, or to one that begins something else. Breaks in it are kept: people mean them. */
function paragraph(lines, at, budget, depth) {
  if (lines[at].trim() === "") return [null, at + 1];
  let end = at + 1;
  while (end < lines.length && lines[end].trim() !== "" && !(depth < MOST_DEPTH && interrupts(lines[end]))) end += 1;
  return [el("p", {}, inline(lines.slice(at, end).join("\n"), budget)), end];
}

function interrupts(line) {
  if (line.length > LONGEST_MARKED_LINE) return false;
  return FENCE.test(line) || HEADING.test(line) || QUOTE.test(line) || ITEM.test(line) || RULE.test(line);
}
