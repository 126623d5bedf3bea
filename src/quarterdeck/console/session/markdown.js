// Renders Markdown as DOM elements: headings, lists, quotes, code and inline marks. HTML in the text stays text, images
// become links, and the time is linear for any input.

import { el } from "../dom.js";
import { inline } from "./inline_markdown.js";

// The rest of a text with more elements is shown as plain text.
const MAX_ELEMENTS = 4000;
const MAX_DEPTH = 6;
const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`\s]*)/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(\S.*)$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,40})([-*+]|\d{1,9}[.)])(?:[ \t]+|$)/;
// Longer lines are plain text. This bounds the time of the patterns above.
const MAX_MARKED_LINE = 5000;

export function markdown(text) {
  const budget = { left: MAX_ELEMENTS };
  return blocks(text.replaceAll("\r\n", "\n").split("\n"), budget, 0);
}

function blocks(lines, budget, depth) {
  const found = [];
  let at = 0;
  while (at < lines.length && budget.left > 0) {
    const taken = depth < MAX_DEPTH ? block(lines, at, budget, depth) : null;
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

/** Returns `[node, next line]` if a marked block starts at this line, else null. */
function block(lines, at, budget, depth) {
  const line = lines[at];
  if (line.length > MAX_MARKED_LINE) return null;
  const fence = FENCE.exec(line);
  if (fence) return code(lines, at, fence[1]);
  const heading = HEADING.exec(line);
  if (heading) {
    // The page itself uses levels 1 and 2.
    const level = Math.min(heading[1].length + 2, 6);
    return [el(`h${level}`, {}, inline(heading[2].replace(/[ \t]#+[ \t]*$/, ""), budget)), at + 1];
  }
  if (RULE.test(line)) return [el("hr"), at + 1];
  if (QUOTE.test(line)) return quote(lines, at, budget, depth);
  return ITEM.test(line) ? list(lines, at, budget, depth) : null;
}

function code(lines, at, mark) {
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
  while (next < lines.length && budget.left > 0 && startsItem(lines[next], indent.length, isNumbered)) {
    const end = itemEnd(lines, next, indent.length);
    items.push(el("li", {}, item(lines.slice(next, end), budget, depth)));
    budget.left -= 1;
    next = end;
  }
  const start = isNumbered ? Number.parseInt(mark, 10) : null;
  return [el(isNumbered ? "ol" : "ul", { start: start === 1 ? null : start }, items), next];
}

function startsItem(line, indent, isNumbered) {
  const found = line.length > MAX_MARKED_LINE ? null : ITEM.exec(line);
  return found !== null && found[1].length <= indent + 1 && /\d/.test(found[2]) === isNumbered;
}

/** Deeper indented lines belong to the item, also after an empty line. */
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

/** Unwraps the first paragraph of a list item. */
function tight(nodes) {
  if (nodes[0]?.tagName !== "P") return nodes;
  return [...nodes[0].childNodes, ...nodes.slice(1)];
}

/** Ends at an empty line or at the start of another block. Line breaks are kept. */
function paragraph(lines, at, budget, depth) {
  if (lines[at].trim() === "") return [null, at + 1];
  let end = at + 1;
  while (end < lines.length && lines[end].trim() !== "" && !(depth < MAX_DEPTH && interrupts(lines[end]))) end += 1;
  return [el("p", {}, inline(lines.slice(at, end).join("\n"), budget)), end];
}

function interrupts(line) {
  if (line.length > MAX_MARKED_LINE) return false;
  return FENCE.test(line) || HEADING.test(line) || QUOTE.test(line) || ITEM.test(line) || RULE.test(line);
}
