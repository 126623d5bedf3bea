// One file of a comparison: its lines side by side where there is room, and one below the other where there is not.

import { el, fill, freshId } from "../dom.js";
import { visible } from "../visible.js";
import { counted, hunksOf, paired } from "./patches.js";
import { bytes, count } from "./words.js";

// A file with more is folded, and shown so much at a time.
const MOST_ROWS = 2000;
const MARKS = { "-": "−", "+": "+", " ": " " };
const CHANGES = { added: ["good", "Added"], removed: ["bad", "Removed"], changed: ["warn", "Changed"] };
const WHY_NOT = {
  binary: "It is not text, so there are no lines to compare.",
  too_large: "It is too large to be compared line by line.",
};

export const wideEnough = window.matchMedia("(min-width: 68rem)");

export function changeTag(file) {
  const [kind, word] = CHANGES[file.change];
  return el("span", {}, el("span", { class: `tag ${kind}` }, word));
}

/** `+3 −1`, or why there are no lines. */
export function lineCounts(file) {
  if (file.why_no_diff) return el("span", { class: "quiet" }, file.why_no_diff === "binary" ? "not text" : "too large");
  const { added, removed } = counted(hunksOf(file.diff));
  return el(
    "span",
    { class: "counts" },
    el("span", { "aria-label": `${count(added, "line")} added`, role: "img", class: "plus" }, `+${added}`),
    " ",
    el("span", { "aria-label": `${count(removed, "line")} removed`, role: "img", class: "minus" }, `−${removed}`),
  );
}

/** `budget.rows` is what all files together may show unasked. `draw()` draws it anew for another width. */
export function fileComparison(file, versions, budget) {
  const hunks = file.diff === null ? [] : hunksOf(file.diff);
  const rows = hunks.reduce((sum, hunk) => sum + hunk.rows.length, 0);
  const opened = rows <= MOST_ROWS && rows <= budget.rows;
  if (opened) budget.rows -= rows;
  const body = el("div", {});
  const id = freshId("file");
  const folded = el(
    "details",
    { class: "comparison", open: opened },
    el(
      "summary",
      { id },
      changeTag(file),
      " ",
      el("bdi", { class: "mono" }, visible(file.path)),
      " ",
      lineCounts(file),
      !opened && el("span", { class: "quiet" }, ` ${count(rows, "line")}: show`),
    ),
    facts(file),
    body,
  );
  function draw() {
    // What is not looked at costs nothing.
    if (folded.open) fill(body, hunks.length > 0 && table(hunks, file, versions, folded.querySelector("summary").id));
  }
  folded.addEventListener("toggle", () => {
    if (body.childElementCount === 0) draw();
  });
  draw();
  return { node: folded, draw };
}

function facts(file) {
  const said = [];
  if (file.why_no_diff) said.push(WHY_NOT[file.why_no_diff]);
  if (file.why_no_diff) said.push(sizes(file));
  if (file.executable_changed && file.change === "changed") said.push("Whether it may be executed was changed.");
  if (file.diff === "" && !file.executable_changed) said.push("It is empty.");
  return said.length > 0 && el("p", { class: "quiet" }, said.join(" "));
}

function sizes({ base_bytes: base, head_bytes: head }) {
  if (base === null) return `${bytes(head)}.`;
  return head === null ? `${bytes(base)}.` : `${bytes(base)} became ${bytes(head)}.`;
}

function table(hunks, file, versions, labelledBy) {
  // A file that is on one side only has nothing to stand beside.
  const sides = wideEnough.matches && file.change === "changed";
  const rows = hunks.flatMap((hunk) => [hunk.heading, ...(sides ? paired(hunk.rows) : hunk.rows)]);
  const body = el("tbody", { role: "rowgroup" });
  const made = el(
    "table",
    { class: sides ? "code-rows sides" : "code-rows", role: "table", "aria-labelledby": labelledBy },
    headings(sides, versions),
    body,
  );
  const place = el("div", {}, made);
  let shown = 0;
  function more() {
    const some = rows.slice(shown, shown + MOST_ROWS);
    shown += some.length;
    body.append(
      ...some.map((row) => (typeof row === "string" ? headingRow(row, sides) : sides ? pairRow(row) : unifiedRow(row))),
    );
    const left = rows.length - shown;
    if (left === 0) return;
    const button = el("button", { type: "button", class: "more" }, `Show more of the other ${count(left, "line")}`);
    button.addEventListener("click", () => {
      button.remove();
      more();
    });
    place.append(button);
  }
  more();
  return place;
}

function headings(sides, { base, head }) {
  const columns = sides
    ? [`Line in version ${base}`, `Version ${base}`, `Line in version ${head}`, `Version ${head}`]
    : [`Line in version ${base}`, `Line in version ${head}`, "Text"];
  const cells = columns.map((name) =>
    el("th", { role: "columnheader", scope: "col" }, el("span", { class: "unseen" }, name)),
  );
  return el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, cells));
}

function headingRow(text, sides) {
  return el("tr", { role: "row", class: "hunk" }, el("td", { role: "cell", colspan: sides ? 4 : 3 }, text));
}

function pairRow([left, right]) {
  return el("tr", { role: "row" }, number(left?.base), code(left), number(right?.head), code(right));
}

function unifiedRow(row) {
  return el("tr", { role: "row" }, number(row.base), number(row.head), code(row));
}

function number(line) {
  return el("td", { role: "cell", class: "number" }, line ?? "");
}

function code(row) {
  if (!row) return el("td", { role: "cell", class: "nothing" });
  const tag = { "-": "del", "+": "ins", " ": "span" }[row.mark];
  return el(
    "td",
    { role: "cell", class: { "-": "minus", "+": "plus", " ": null }[row.mark] },
    el("span", { class: "mark", "aria-hidden": "true" }, MARKS[row.mark]),
    el(tag, {}, visible(row.text)),
    row.open && el("span", { class: "quiet" }, " (no line feed at the end)"),
  );
}
