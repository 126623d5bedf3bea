// The area where the user drops or chooses a skill.

import { el, fill, uniqueId } from "../dom.js";
import { icon } from "../icons.js";
import { errorBox } from "../notices.js";
import { archiveBundle, folderBundle, isArchive } from "./bundles.js";
import { chosenFolder, droppedEntry, fileEntry, fileList } from "./file_entries.js";

/** `onBundle(bundle)` is called for each dropped or chosen folder or archive. */
export function dropZone({ heading, signal, onBundle }) {
  const headingId = uniqueId("drop");
  const folder = el("input", { type: "file", webkitdirectory: true, hidden: true, "aria-label": "Folder" });
  const archive = el("input", { type: "file", accept: ".gz,.tgz,application/gzip", hidden: true, "aria-label": "Archive" });
  const status = el("div", { class: "drop-status" });
  const zone = el(
    "section",
    { class: "drop-zone", "aria-labelledby": headingId },
    icon("upload"),
    el("div", { class: "drop-text" }, el("h2", { id: headingId }, heading), el("p", {}, "Drop a folder with a SKILL.md or a .tar.gz archive here.")),
    el("div", { class: "buttons" }, fileButton("Choose folder…", folder), fileButton("Choose .tar.gz…", archive)),
    el(
      "p",
      { class: "hint" },
      "Folders are packed in the browser, which does not read ignore files or executable bits. Use ",
      el("code", {}, "qd skills push"),
      " for these.",
    ),
    folder,
    archive,
    status,
  );

  async function read(load) {
    fill(status, el("p", { role: "status" }, "Reading…"));
    try {
      await onBundle(await load());
      fill(status);
    } catch (error) {
      if (!signal.aborted) fill(status, errorBox(error));
    }
  }

  folder.addEventListener("change", () => {
    const files = [...folder.files];
    // Reset, so that choosing the same folder again fires another event.
    folder.value = "";
    if (files.length > 0) read(() => folderBundle(chosenFolder(files), signal));
  });
  archive.addEventListener("change", () => {
    const [file] = archive.files;
    archive.value = "";
    if (file) read(async () => archiveBundle(file));
  });
  acceptDrops(zone, signal, (transfer) => {
    // Must be read synchronously: the transfer is emptied after the event.
    const entries = [...transfer.items]
      .map((item) => item.webkitGetAsEntry?.())
      .filter(Boolean)
      .map(droppedEntry);
    const files = [...transfer.files].map(fileEntry);
    read(() => droppedBundle(entries.length > 0 ? entries : files, signal));
  });
  return zone;
}

/** File inputs cannot be styled or labelled consistently, so a button opens them. */
function fileButton(text, input) {
  return el("button", { type: "button", on: { click: () => input.click() } }, text);
}

async function droppedBundle(entries, signal) {
  const [first] = entries;
  if (!first) throw new Error("No files were dropped.");
  if (entries.length === 1 && first.entries) return folderBundle(first, signal);
  if (entries.length === 1 && isArchive(first.name)) return archiveBundle(await first.file());
  return folderBundle(fileList("Dropped files", entries), signal);
}

/** Calls `onDrop(transfer)` for files that are dropped on the zone, which has the class `over` meanwhile. */
export function acceptDrops(zone, signal, onDrop) {
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  const onDragOver = (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    zone.classList.add("over");
  };
  zone.addEventListener("dragenter", onDragOver);
  zone.addEventListener("dragover", onDragOver);
  zone.addEventListener("dragleave", (event) => {
    if (!zone.contains(event.relatedTarget)) zone.classList.remove("over");
  });
  zone.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    zone.classList.remove("over");
    onDrop(event.dataTransfer);
  });
  // The browser would open a file that is dropped outside of the zone.
  for (const name of /** @type {const} */ (["dragover", "drop"])) {
    window.addEventListener(
      name,
      (event) => {
        // A removed zone must not block drops on the zone that replaced it.
        if (!zone.isConnected || zone.contains(event.target) || !hasFiles(event)) return;
        event.preventDefault();
        if (event.dataTransfer) event.dataTransfer.dropEffect = "none";
      },
      { signal },
    );
  }
}
