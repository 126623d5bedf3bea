// Folders as a browser gives them: chosen by a button, or dropped. Both become
// `{name, entries()}`, whose entries are `{name, file()}` or `{name, entries()}`.

/** What an `<input webkitdirectory>` found: a flat list, of paths that begin with the folder's name. */
export function chosenFolder(files) {
  const root = branch(files[0].webkitRelativePath.split("/")[0]);
  for (const file of files) {
    const names = file.webkitRelativePath.split("/").slice(1);
    const last = names.pop();
    names.reduce(below, root).inside.set(last, { name: last, file: async () => file });
  }
  return root;
}

/** Files without a folder around them, as if there were one. */
export function looseFiles(name, entries) {
  const root = branch(name);
  for (const entry of entries) root.inside.set(entry.name, entry);
  return root;
}

/** A FileSystemEntry of a drop. */
export function droppedEntry(entry) {
  if (entry.isFile) return { name: entry.name, file: () => new Promise((done, fail) => entry.file(done, fail)) };
  return { name: entry.name, entries: () => allEntries(entry.createReader()) };
}

export function plainFile(file) {
  return { name: file.name, file: async () => file };
}

function branch(name) {
  const inside = new Map();
  return { name, inside, entries: async () => [...inside.values()] };
}

function below(parent, name) {
  if (!parent.inside.has(name)) parent.inside.set(name, branch(name));
  return parent.inside.get(name);
}

/** A reader gives some at a time, and none when it is through. */
async function allEntries(reader) {
  const found = [];
  for (;;) {
    const some = await new Promise((done, fail) => reader.readEntries(done, fail));
    if (some.length === 0) return found;
    found.push(...some.map(droppedEntry));
  }
}
