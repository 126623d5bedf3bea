// Files as a tree of nested lists. The arrow keys move between its rows, open and close folders.

import { el } from "../dom.js";
import { formatBytes, pluralize } from "../format.js";
import { visibleText } from "../visible_text.js";

// A folder can contain thousands of files; they are rendered in steps.
const ROWS_PER_STEP = 500;

/**
 * `files`: `{path, bytes, executable, kind, target}`, sorted; `kind` is "folder" for an empty one, "link" with its target, else
 * a file. `link(file)` returns the address of a file; `open(file)` shows it on this page. `expanded` contains the paths of
 * open folders and follows what the user does.
 */
export function fileTree(files, link, open, expanded = new Set()) {
  /** Path of a folder → function that expands it. */
  const expand = new Map();
  const node = el("div", { class: "tree" }, folderList(buildTree(files), "", { link, open, expand, expanded }));
  node.addEventListener("keydown", (event) => onKeydown(event, node));
  return { node, select: (path) => select(node, path, expand) };
}

function onKeydown(event, tree) {
  const rows = [...tree.querySelectorAll("summary, .file a")].filter((row) => row.checkVisibility());
  const row = event.target;
  const index = rows.indexOf(row);
  if (index < 0) return;
  const folder = row.localName === "summary" ? row.parentElement : null;
  const moves = { ArrowDown: rows[index + 1], ArrowUp: rows[index - 1], Home: rows[0], End: rows.at(-1) };
  if (event.key in moves) moves[event.key]?.focus();
  else if (event.key === "ArrowRight" && folder) folder.open = true;
  else if (event.key === "ArrowLeft" && folder?.open) folder.open = false;
  else if (event.key === "ArrowLeft") (folder ?? row).parentElement.closest("details")?.querySelector("summary").focus();
  else return;
  event.preventDefault();
}

/** Marks the file as current and expands its folders. */
function select(tree, path, expand) {
  for (let slash = path.indexOf("/"); slash > 0; slash = path.indexOf("/", slash + 1)) expand.get(path.slice(0, slash))?.();
  for (const link of tree.querySelectorAll("a[aria-current]")) link.removeAttribute("aria-current");
  tree.querySelector(`a[data-path="${CSS.escape(path)}"]`)?.setAttribute("aria-current", "true");
}

/** Nested `{folders: Map, files, count, bytes}`; `count` and `bytes` include subfolders. */
function buildTree(files) {
  const root = emptyFolder();
  for (const file of files) {
    const names = file.path.split("/");
    const name = file.kind === "folder" ? null : names.pop();
    let folder = root;
    for (const part of names) {
      if (!folder.folders.has(part)) folder.folders.set(part, emptyFolder());
      folder = folder.folders.get(part);
      if (name === null) continue;
      folder.count += 1;
      folder.bytes += file.bytes;
    }
    if (name !== null) folder.files.push({ name, file });
  }
  return root;
}

function emptyFolder() {
  return { folders: new Map(), files: [], count: 0, bytes: 0 };
}

function folderList(folder, prefix, tree) {
  const list = el("ul", {});
  const rows = [
    ...[...folder.folders].map(([name, child]) => () => folderRow(name, prefix + name, child, tree)),
    ...folder.files.map((one) => () => fileRow(one, tree)),
  ];
  let shown = 0;
  function showMore() {
    const nodes = rows.slice(shown, shown + ROWS_PER_STEP).map((render) => render());
    shown += nodes.length;
    list.append(...nodes);
    const left = rows.length - shown;
    if (left === 0) return;
    const button = el("button", { class: "small", type: "button" }, `Show more (${left.toLocaleString("en")} left)`);
    const row = el("li", {}, button);
    button.addEventListener("click", () => {
      const first = shown;
      row.remove();
      showMore();
      list.children[first].querySelector("a, summary").focus();
    });
    list.append(row);
  }
  showMore();
  return list;
}

/** The content is rendered when the folder is opened for the first time. */
function folderRow(name, path, folder, tree) {
  const details = el(
    "details",
    {},
    el(
      "summary",
      { "data-path": path },
      el("bdi", {}, visibleText(name)),
      "/ ",
      el("span", { class: "muted" }, folder.count === 0 ? "Empty" : `${pluralize(folder.count, "file")}, ${formatBytes(folder.bytes)}`),
    ),
  );
  const render = () => {
    if (details.childElementCount === 1) details.append(folderList(folder, `${path}/`, tree));
  };
  details.addEventListener("toggle", () => {
    if (details.open) render();
    tree.expanded[details.open ? "add" : "delete"](path);
  });
  tree.expand.set(path, () => {
    render();
    details.open = true;
  });
  if (tree.expanded.has(path)) tree.expand.get(path)();
  return el("li", {}, details);
}

function fileRow({ name, file }, tree) {
  if (file.kind === "link") return el("li", { class: "file" }, el("span", { class: "link muted" }, el("bdi", {}, visibleText(name)), " → ", el("bdi", {}, visibleText(file.target))));
  const onClick = (event) => {
    // Keep the browser's own behaviour for opening a new tab or window.
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    tree.open(file);
  };
  return el(
    "li",
    { class: "file" },
    el("a", { href: tree.link(file), "data-path": file.path, on: { click: onClick } }, el("bdi", {}, visibleText(name))),
    file.executable && el("span", { class: "tag" }, "Executable"),
    el("span", { class: "muted size" }, formatBytes(file.bytes)),
  );
}
