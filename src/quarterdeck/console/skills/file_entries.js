// Chosen and dropped files in one form: `{name, file()}` for files and `{name, entries()}` for folders.

/** The result of `<input webkitdirectory>`: a flat list of files with relative paths. */
export function chosenFolder(files) {
  const root = folder(files[0].webkitRelativePath.split("/")[0]);
  for (const file of files) {
    const names = file.webkitRelativePath.split("/").slice(1);
    const last = names.pop();
    names.reduce(subfolder, root).children.set(last, fileEntry(file));
  }
  return root;
}

/** Presents single files as a folder. */
export function fileList(name, entries) {
  return { name, entries: async () => entries };
}

/** A FileSystemEntry of a drop event. */
export function droppedEntry(entry) {
  if (entry.isFile) return { name: entry.name, file: () => new Promise((resolve, reject) => entry.file(resolve, reject)) };
  return { name: entry.name, entries: () => readEntries(entry.createReader()) };
}

export function fileEntry(file) {
  return { name: file.name, file: async () => file };
}

function folder(name) {
  const children = new Map();
  return { name, children, entries: async () => [...children.values()] };
}

function subfolder(parent, name) {
  if (!parent.children.has(name)) parent.children.set(name, folder(name));
  return parent.children.get(name);
}

/** `readEntries` returns the entries in batches; an empty batch is the end. */
async function readEntries(reader) {
  const entries = [];
  for (;;) {
    const batch = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (batch.length === 0) return entries;
    entries.push(...batch.map(droppedEntry));
  }
}
