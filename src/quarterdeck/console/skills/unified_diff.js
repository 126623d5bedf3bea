// Parses a unified diff. Hunk lengths come from the hunk header, so a removed line that looks like a header is safe.

const HUNK_HEADER = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/;
const NO_NEWLINE = "\\ No newline at end of file";

/** `[{heading, rows: [{sign, text, base, head, noNewline}]}]`; `base` and `head` are line numbers. */
export function parseDiff(diff) {
  const lines = diff.split("\n");
  const hunks = [];
  for (let index = 0; index < lines.length; index += 1) {
    const match = HUNK_HEADER.exec(lines[index]);
    if (!match) continue;
    const [heading, base, baseCount = "1", head, headCount = "1"] = match;
    const hunk = { heading, rows: [] };
    const next = { base: Number(base), head: Number(head) };
    const left = { base: Number(baseCount), head: Number(headCount) };
    while (left.base > 0 || left.head > 0 || lines[index + 1] === NO_NEWLINE) {
      index += 1;
      if (index >= lines.length) break;
      if (lines[index] === NO_NEWLINE) hunk.rows.at(-1).noNewline = true;
      else hunk.rows.push(parseRow(lines[index], next, left));
    }
    hunks.push(hunk);
  }
  return hunks;
}

function parseRow(line, next, left) {
  const row = { sign: line[0] ?? " ", text: line.slice(1), base: null, head: null, noNewline: false };
  const sides = { "-": ["base"], "+": ["head"] }[row.sign] ?? ["base", "head"];
  for (const side of sides) {
    row[side] = next[side];
    next[side] += 1;
    left[side] -= 1;
  }
  return row;
}

export function countChanges(hunks) {
  const rows = hunks.flatMap((hunk) => hunk.rows);
  return {
    added: rows.filter((row) => row.sign === "+").length,
    removed: rows.filter((row) => row.sign === "-").length,
  };
}

/** `[left, right]` rows for a side-by-side view. A side without a line is null. */
export function pairRows(rows) {
  const pairs = [];
  let removed = [];
  let added = [];
  const flush = () => {
    for (let index = 0; index < Math.max(removed.length, added.length); index += 1)
      pairs.push([removed[index] ?? null, added[index] ?? null]);
    [removed, added] = [[], []];
  };
  for (const row of rows) {
    if (row.sign === "-") removed.push(row);
    else if (row.sign === "+") added.push(row);
    else {
      flush();
      pairs.push([row, row]);
    }
  }
  flush();
  return pairs;
}
