// The place where a skill is dropped, or chosen by buttons. What was chosen is a bundle; sending it is another's task.

import { el, fill, freshId } from "../dom.js";
import { faultBox } from "../notices.js";
import { archiveBundle, folderBundle, isArchive } from "./bundles.js";
import { chosenFolder, droppedEntry, looseFiles, plainFile } from "./folders.js";

/** `chosen(bundle)` is called for each; `heading` says what becomes of it. */
export function dropZone({ heading, signal, chosen }) {
  const id = freshId("drop");
  const folder = el("input", { type: "file", webkitdirectory: true, hidden: true });
  const archive = el("input", { type: "file", accept: ".gz,.tgz,application/gzip", hidden: true });
  const said = el("div", {});
  const zone = el(
    "section",
    { class: "drop-zone", "aria-labelledby": id },
    el("h2", { id }, heading),
    el("p", {}, "Drop a folder with a SKILL.md here, or a .tar.gz of one."),
    el("div", { class: "buttons" }, opener("Choose a folder…", folder), opener("Choose a .tar.gz…", archive)),
    el(
      "p",
      { class: "hint" },
      "A folder is packed in this page, without ",
      el("code", {}, ".git"),
      " and what ",
      el("code", {}, ".gitignore"),
      " and ",
      el("code", {}, ".skillignore"),
      " name. Browsers do not tell which files may be executed: for that, use an archive or ",
      el("code", {}, "qd skills push"),
      ".",
    ),
    folder,
    archive,
    said,
  );

  async function take(open) {
    fill(said, el("p", { role: "status" }, "Reading…"));
    try {
      const bundle = await open();
      fill(said);
      chosen(bundle);
    } catch (fault) {
      if (!signal.aborted) fill(said, faultBox(fault));
    }
  }

  folder.addEventListener("change", () => {
    const files = [...folder.files];
    // The same folder may be chosen again, changed meanwhile.
    folder.value = "";
    // A folder without files cannot be told from none.
    if (files.length > 0) take(() => folderBundle(chosenFolder(files), signal));
  });
  archive.addEventListener("change", () => {
    const [file] = archive.files;
    archive.value = "";
    if (file) take(async () => archiveBundle(file));
  });
  acceptDrops(zone, signal, (transfer) => {
    // Asked now: the transfer is empty as soon as its event has passed.
    const entries = [...transfer.items]
      .map((item) => item.webkitGetAsEntry?.())
      .filter(Boolean)
      .map(droppedEntry);
    const files = [...transfer.files];
    take(() => droppedBundle(entries.length > 0 ? entries : files.map(plainFile), signal));
  });
  return zone;
}

/** A button in the place of the input, which looks the same nowhere and cannot be named. */
function opener(text, input) {
  return el("button", { type: "button", on: { click: () => input.click() } }, text);
}

async function droppedBundle(entries, signal) {
  const [only] = entries;
  if (!only) throw new Error("There was no file in what was dropped.");
  if (entries.length === 1 && only.entries) return folderBundle(only, signal);
  if (entries.length === 1 && isArchive(only.name)) return archiveBundle(await only.file());
  return folderBundle(looseFiles("What was dropped", entries), signal);
}

function acceptDrops(zone, signal, dropped) {
  const over = (event) => {
    event.preventDefault();
    zone.classList.add("over");
  };
  zone.addEventListener("dragenter", over);
  zone.addEventListener("dragover", over);
  zone.addEventListener("dragleave", (event) => {
    if (!zone.contains(event.relatedTarget)) zone.classList.remove("over");
  });
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    zone.classList.remove("over");
    dropped(event.dataTransfer);
  });
  // What misses the zone would otherwise open in place of the page.
  for (const name of ["dragover", "drop"]) {
    window.addEventListener(
      name,
      (event) => {
        // A zone that is gone must not forbid what its successor allows.
        if (!zone.isConnected || zone.contains(event.target)) return;
        event.preventDefault();
        if (event.dataTransfer) event.dataTransfer.dropEffect = "none";
      },
      { signal },
    );
  }
}

let handed = null;

/** From the page where a skill was made to its own, where its first version is pushed. */
export function handOver(skillId, bundle) {
  handed = { skillId, bundle };
}

/** The bundle that was handed over to this skill, once. */
export function takeOver(skillId) {
  const found = handed?.skillId === skillId ? handed.bundle : null;
  handed = null;
  return found;
}
