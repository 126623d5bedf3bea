// Markdown as HTML: the settings of markdown-it and highlight.js. The HTML must be sanitised before it is used.

import hljs from "../vendor/highlight.js";
import MarkdownIt from "../vendor/markdown-it.js";

// The rest of the code in a text is shown without colours.
const MAX_HIGHLIGHTED = 20_000;
// The expressions of highlight.js take quadratic time for these: a long line, or a long run of white space.
const SLOW_CODE = /.{500}|\s{200}/;
const SAFE_LINK = /^(?:https?:\/\/[^/]|mailto:.)/i;

const parser = MarkdownIt({ html: false, linkify: true, breaks: true, maxNesting: 20, highlight });
// Without this, file names such as README.md would become links.
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
// A link with another scheme stays text.
parser.validateLink = (url) => SAFE_LINK.test(url);

const { rules } = parser.renderer;
const { escapeHtml } = parser.utils;
rules.heading_open = rules.heading_close = heading;
rules.th_open = rules.td_open = cell;
rules.image = image;
const { fence } = rules;
rules.fence = (tokens, index, options, env, renderer) =>
  fence(tokens, index, tokens[index].meta?.isPlain ? { ...options, highlight: null } : options, env, renderer);

/** Returns the top-level blocks `{key, line, elements, depth, html()}`. `line`: the first line of the block. */
export function parseBlocks(text) {
  const env = {};
  const tokens = parser.parse(text, env);
  limitHighlighting(tokens);
  const lines = text.split("\n");
  const references = JSON.stringify(env.references ?? {});
  const blocks = [];
  let start = 0;
  for (const [index, token] of tokens.entries()) {
    if (token.level > 0 || token.nesting === 1) continue;
    const part = tokens.slice(start, index + 1);
    const [line, end] = part[0].map;
    const html = () => parser.renderer.render(part, parser.options, env);
    blocks.push({ key: `${references}${lines.slice(line, end).join("\n")}`, line, ...size(part), html });
    start = index + 1;
  }
  return blocks;
}

function limitHighlighting(tokens) {
  let left = MAX_HIGHLIGHTED;
  for (const token of tokens) {
    if (token.type !== "fence") continue;
    left -= token.content.length;
    if (left < 0) token.meta = { isPlain: true };
  }
}

/** The name of a programming language, such as "Python" for `py`. */
export function languageName(name) {
  return hljs.getLanguage(name)?.name ?? name;
}

function size(tokens) {
  let elements = 0;
  let level = 0;
  let depth = 0;
  for (const token of tokens.flatMap((one) => (one.children ? [one, ...one.children] : [one]))) {
    if (token.nesting >= 0 && token.type !== "text") elements += 1;
    level += token.nesting;
    depth = Math.max(depth, level);
  }
  return { elements, depth };
}

/** HTML of the code with its colours. Empty if the language is not known, or if it would take too long. */
export function highlight(code, language) {
  if (!hljs.getLanguage(language) || SLOW_CODE.test(code)) return "";
  return hljs.highlight(code, { language, ignoreIllegals: true }).value;
}

/** The page itself uses levels 1 and 2. */
function heading(tokens, index) {
  const token = tokens[index];
  return `<${token.nesting === 1 ? "" : "/"}h${Math.min(Number(token.tag[1]) + 2, 6)}>`;
}

/** The policy of the page forbids style attributes. */
function cell(tokens, index, options, _env, renderer) {
  const token = tokens[index];
  const alignment = /right|center/.exec(token.attrGet("style") ?? "");
  token.attrs = alignment && [["class", `align-${alignment[0]}`]];
  return renderer.renderToken(tokens, index, options);
}

/** Images become links: loading them would tell another host who reads the conversation. */
function image(tokens, index, options, env, renderer) {
  const source = tokens[index].attrGet("src");
  const label = escapeHtml(`Image: ${renderer.renderInlineAsText(tokens[index].children, options, env) || source}`);
  const isInLink = tokens.slice(0, index).findLast(({ type }) => type.startsWith("link_"))?.type === "link_open";
  return isInLink ? label : `<a href="${escapeHtml(source)}">${label}</a>`;
}
