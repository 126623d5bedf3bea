// A unified diff as rows. The counts of a hunk tell where it ends: a removed line that looks like a heading is none.

const HUNK = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/;
const NO_NEWLINE = "\\ No newline at end of file";

/** `[{heading, rows: [{mark, text, base, head, open}]}]`: numbers of lines; `open`: no line feed ends the file here. */
export function hunksOf(patch) {
  const lines = patch.split("\n");
  const hunks = [];
  for (let at = 0; at < lines.length; at += 1) {
    const found = HUNK.exec(lines[at]);
    if (!found) continue;
    const [, base, baseCount = "1", head, headCount = "1"] = found;
    const hunk = { heading: found[0], rows: [] };
    const next = { base: Number(base), head: Number(head) };
    const left = { base: Number(baseCount), head: Number(headCount) };
    while (left.base > 0 || left.head > 0 || lines[at + 1] === NO_NEWLINE) {
      at += 1;
      if (at >= lines.length) break;
      if (lines[at] === NO_NEWLINE) hunk.rows.at(-1).open = true;
      else hunk.rows.push(rowOf(lines[at], next, left));
    }
    hunks.push(hunk);
  }
  return hunks;
}

function rowOf(line, next, left) {
  const row = { mark: line[0] ?? " ", text: line.slice(1), base: null, head: null, open: false };
  for (const [side, otherMark] of [
    ["base", "+"],
    ["head", "-"],
  ]) {
    if (row.mark === otherMark) continue;
    row[side] = next[side];
    next[side] += 1;
    left[side] -= 1;
  }
  return row;
}

/** How many lines came and went. */
export function counted(hunks) {
  const rows = hunks.flatMap((hunk) => hunk.rows);
  return {
    added: rows.filter((row) => row.mark === "+").length,
    removed: rows.filter((row) => row.mark === "-").length,
  };
}

/** `[left, right]` for two columns: what was removed stands beside what came in its place. null: nothing there. */
export function paired(rows) {
  const pairs = [];
  let removed = [];
  let added = [];
  const settle = () => {
    for (let at = 0; at < Math.max(removed.length, added.length); at += 1)
      pairs.push([removed[at] ?? null, added[at] ?? null]);
    [removed, added] = [[], []];
  };
  for (const row of rows) {
    if (row.mark === "-") removed.push(row);
    else if (row.mark === "+") added.push(row);
    else {
      settle();
      pairs.push([row, row]);
    }
  }
  settle();
  return pairs;
}
