// The diff of one file: side by side on wide screens, unified on narrow ones.

import { el, fill, uniqueId } from "../dom.js";
import { formatBytes, pluralize } from "../format.js";
import { visibleText } from "../visible_text.js";
import { countChanges, pairRows, parseDiff } from "./unified_diff.js";

// Files with more rows are collapsed and rendered in steps of this size.
const MAX_ROWS = 2000;
const SIGNS = { "-": "−", "+": "+", " ": " " };
const CHANGES = { added: ["good", "Added"], removed: ["bad", "Removed"], changed: ["warn", "Changed"] };
const NO_DIFF_REASONS = { binary: "Binary file not shown.", too_large: "File too large to compare." };

export const wideScreen = window.matchMedia("(min-width: 68rem)");

export function changeTag(file) {
  const [tone, label] = CHANGES[file.change];
  return el("span", {}, el("span", { class: `tag ${tone}` }, label));
}

/** `+3 −1`, or the reason why there is no line diff. */
export function lineCounts(file) {
  if (file.why_no_diff) return el("span", { class: "muted" }, file.why_no_diff === "binary" ? "Binary" : "Too large");
  const { added, removed } = countChanges(parseDiff(file.diff));
  return el(
    "span",
    { class: "counts" },
    el("span", { "aria-label": `${pluralize(added, "line")} added`, role: "img", class: "plus" }, `+${added}`),
    " ",
    el("span", { "aria-label": `${pluralize(removed, "line")} removed`, role: "img", class: "minus" }, `−${removed}`),
  );
}

/** `budget.rows` limits the rows that all files together show initially. `draw()` redraws for another screen width. */
export function fileDiff(file, versions, budget) {
  const hunks = file.diff === null ? [] : parseDiff(file.diff);
  const rowCount = hunks.reduce((sum, hunk) => sum + hunk.rows.length, 0);
  const isOpen = rowCount <= MAX_ROWS && rowCount <= budget.rows;
  if (isOpen) budget.rows -= rowCount;
  const body = el("div", {});
  const summaryId = uniqueId("file");
  const node = el(
    "details",
    { class: "file-diff", open: isOpen },
    el(
      "summary",
      { id: summaryId },
      changeTag(file),
      " ",
      el("bdi", { class: "mono" }, visibleText(file.path)),
      " ",
      lineCounts(file),
      !isOpen && el("span", { class: "muted" }, ` Show ${pluralize(rowCount, "line")}`),
    ),
    notes(file),
    body,
  );
  function draw() {
    // Collapsed diffs are rendered when they are opened.
    if (node.open) fill(body, hunks.length > 0 && diffTable(hunks, file, versions, summaryId));
  }
  node.addEventListener("toggle", () => {
    if (body.childElementCount === 0) draw();
  });
  draw();
  return { node, draw };
}

function notes(file) {
  const texts = [];
  if (file.why_no_diff) texts.push(NO_DIFF_REASONS[file.why_no_diff], sizes(file));
  if (file.executable_changed && file.change === "changed") texts.push("Executable bit changed.");
  if (file.diff === "" && !file.executable_changed) texts.push("Empty file.");
  return texts.length > 0 && el("p", { class: "muted" }, texts.join(" "));
}

function sizes({ base_bytes: base, head_bytes: head }) {
  if (base === null || head === null) return formatBytes(base ?? head);
  return `${formatBytes(base)} → ${formatBytes(head)}`;
}

/** A unified diff of a file that is not part of a version. */
export function diffView(hunks, label) {
  return rowsTable(hunks, false, ["Old line", "New line", "Text"], { "aria-label": label });
}

function diffTable(hunks, file, { base, head }, labelledBy) {
  // Added and removed files have only one side.
  const isSplit = wideScreen.matches && file.change === "changed";
  const columns = isSplit
    ? [`Line in version ${base}`, `Version ${base}`, `Line in version ${head}`, `Version ${head}`]
    : [`Line in version ${base}`, `Line in version ${head}`, "Text"];
  return rowsTable(hunks, isSplit, columns, { "aria-labelledby": labelledBy });
}

function rowsTable(hunks, isSplit, columns, label) {
  const rows = hunks.flatMap((hunk) => [hunk.heading, ...(isSplit ? pairRows(hunk.rows) : hunk.rows)]);
  const renderRow = (row) => (typeof row === "string" ? headingRow(row, isSplit) : isSplit ? splitRow(row) : unifiedRow(row));
  const body = el("tbody", { role: "rowgroup" });
  const node = el(
    "table",
    { class: isSplit ? "code-rows split" : "code-rows", role: "table", ...label },
    tableHead(columns),
    body,
  );
  const container = el("div", {}, node);
  let shown = 0;
  function showMore() {
    const next = rows.slice(shown, shown + MAX_ROWS);
    shown += next.length;
    body.append(...next.map(renderRow));
    const left = rows.length - shown;
    if (left === 0) return;
    const button = el("button", { type: "button", class: "more" }, `Show more (${pluralize(left, "line")} left)`);
    button.addEventListener("click", () => {
      button.remove();
      showMore();
    });
    container.append(button);
  }
  showMore();
  return container;
}

function tableHead(columns) {
  const cells = columns.map((name) =>
    el("th", { role: "columnheader", scope: "col" }, el("span", { class: "visually-hidden" }, name)),
  );
  return el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, cells));
}

function headingRow(text, isSplit) {
  return el("tr", { role: "row", class: "hunk" }, el("td", { role: "cell", colspan: isSplit ? 4 : 3 }, text));
}

function splitRow([left, right]) {
  return el("tr", { role: "row" }, lineNumber(left?.base), code(left), lineNumber(right?.head), code(right));
}

function unifiedRow(row) {
  return el("tr", { role: "row" }, lineNumber(row.base), lineNumber(row.head), code(row));
}

function lineNumber(number) {
  return el("td", { role: "cell", class: "number" }, number ?? "");
}

function code(row) {
  if (!row) return el("td", { role: "cell", class: "no-line" });
  const tag = { "-": "del", "+": "ins", " ": "span" }[row.sign];
  return el(
    "td",
    { role: "cell", class: { "-": "minus", "+": "plus", " ": null }[row.sign] },
    el("span", { class: "sign", "aria-hidden": "true" }, SIGNS[row.sign]),
    el(tag, {}, visibleText(row.text)),
    row.noNewline && el("span", { class: "muted" }, " (no newline at end of file)"),
  );
}
