// The files of a version as folders that fold open. Lists inside of lists: every reader knows them, every key works.

import { el } from "../dom.js";
import { visible } from "../visible.js";
import { bytes, count } from "./words.js";

// A folder may hold thousands; so many at a time are enough to look at.
const AT_ONCE = 500;

/** `files`: of a manifest, sorted. `link(file)`: where a file is shown; `open(file)`: show it here. */
export function fileTree(files, link, open) {
  // By path: what opens a folder.
  const unfold = new Map();
  const node = el("div", { class: "tree" }, listOf(grown(files), "", { link, open, unfold }));
  return { node, mark: (path) => mark(node, path, unfold) };
}

/** As the one that is shown, with the folders open that lead to it. */
function mark(tree, path, unfold) {
  for (let at = path.indexOf("/"); at > 0; at = path.indexOf("/", at + 1)) unfold.get(path.slice(0, at))?.();
  for (const link of tree.querySelectorAll("a[aria-current]")) link.removeAttribute("aria-current");
  tree.querySelector(`a[data-path="${CSS.escape(path)}"]`)?.setAttribute("aria-current", "true");
}

/** `{folders: Map, files}`, of which `folders` hold the same, with how many files and bytes are below. */
function grown(files) {
  const root = branch();
  for (const file of files) {
    const names = file.path.split("/");
    const name = names.pop();
    let here = root;
    for (const one of names) {
      if (!here.folders.has(one)) here.folders.set(one, branch());
      here = here.folders.get(one);
      here.count += 1;
      here.bytes += file.bytes;
    }
    here.files.push({ name, file });
  }
  return root;
}

function branch() {
  return { folders: new Map(), files: [], count: 0, bytes: 0 };
}

function listOf(here, prefix, on) {
  const list = el("ul", {});
  const rows = [
    ...[...here.folders].map(([name, inside]) => ({ make: () => folderRow(name, prefix + name, inside, on) })),
    ...here.files.map((one) => ({ make: () => fileRow(one, on) })),
  ];
  let shown = 0;
  function more() {
    const some = rows.slice(shown, shown + AT_ONCE).map((one) => one.make());
    shown += some.length;
    list.append(...some);
    const left = rows.length - shown;
    if (left === 0) return;
    const button = el(
      "button",
      { class: "small", type: "button" },
      `Show more of the other ${left.toLocaleString("en")}`,
    );
    const row = el("li", {}, button);
    button.addEventListener("click", () => {
      const first = shown;
      row.remove();
      more();
      list.children[first].querySelector("a, summary").focus();
    });
    list.append(row);
  }
  more();
  return list;
}

/** Filled when it is opened first. */
function folderRow(name, path, inside, on) {
  const folded = el(
    "details",
    {},
    el(
      "summary",
      {},
      el("bdi", {}, visible(name)),
      "/ ",
      el("span", { class: "quiet" }, `${count(inside.count, "file")}, ${bytes(inside.bytes)}`),
    ),
  );
  const filled = () => {
    if (folded.childElementCount === 1) folded.append(listOf(inside, `${path}/`, on));
  };
  folded.addEventListener("toggle", filled, { once: true });
  on.unfold.set(path, () => {
    filled();
    folded.open = true;
  });
  return el("li", {}, folded);
}

function fileRow({ name, file }, on) {
  const chosen = (event) => {
    // Another tab is another matter.
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    on.open(file);
  };
  return el(
    "li",
    { class: "file" },
    el("a", { href: on.link(file), "data-path": file.path, on: { click: chosen } }, el("bdi", {}, visible(name))),
    file.executable && el("span", { class: "tag" }, "executable"),
    el("span", { class: "quiet size" }, bytes(file.bytes)),
  );
}
