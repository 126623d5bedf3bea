// Files as chips: of a message that is being written, and of messages in the transcript.

import { el, fill } from "../dom.js";
import { formatBytes } from "../format.js";
import { icon } from "../icons.js";
import { visibleName } from "../visible_text.js";

/** The attachments of a message. `files`: a SessionFiles. */
export function attachmentChips(attachments, files) {
  return el("ul", { class: "chips", "aria-label": "Attachments" }, attachments.map((one) => sentChip(one, files)));
}

function sentChip(attachment, files) {
  const name = visibleName(attachment.name);
  return el(
    "li",
    { class: "chip" },
    el("button", { type: "button", class: "chip-open", title: name, on: { click: () => files.viewAttachment(attachment) } }, picture(files.thumbnail(attachment)), label(name, attachment.bytes)),
    el("button", { type: "button", class: "chip-button", "aria-label": `Download ${name}`, title: "Download", on: { click: () => files.saveAttachment(attachment) } }, icon("download")),
  );
}

/** The files of the message box. `draw()` shows their current state. `files`: for thumbnails of files that were uploaded earlier. */
export function pendingChips(pending, files) {
  const node = el("ul", { class: "chips", "aria-label": "Attached files", hidden: true });
  /** Pending file → `{node, update(), remove()}`. */
  const chips = new Map();

  function draw() {
    for (const [file, chip] of chips) {
      if (pending.files.includes(file)) continue;
      chip.remove();
      chips.delete(file);
    }
    for (const file of pending.files) {
      if (!chips.has(file)) chips.set(file, pendingChip(file, pending, files));
      const chip = chips.get(file);
      chip.update();
      if (chip.node.parentNode === null) node.append(chip.node);
    }
    node.hidden = chips.size === 0;
  }

  return { node, draw };
}

function pendingChip(file, pending, files) {
  const name = visibleName(file.name);
  const progress = el("progress", { max: 1, "aria-label": `Upload of ${name}` });
  const error = el("span", { class: "chip-error", role: "alert" });
  const retry = el("button", { type: "button", class: "small", on: { click: () => pending.retry(file) } }, "Retry");
  const remove = (event) => {
    const { form } = event.currentTarget;
    pending.remove(file);
    form.querySelector("textarea").focus();
  };
  const url = file.blob !== null && hasThumbnail(file.blob) ? URL.createObjectURL(file.blob) : null;
  const node = el(
    "li",
    { class: "chip" },
    picture(file.blob === null ? files.thumbnail(file.attachment) : Promise.resolve(url)),
    el("span", { class: "chip-text" }, label(name, file.bytes), progress, error),
    retry,
    el("button", { type: "button", class: "chip-button", "aria-label": `Remove ${name}`, title: "Remove", on: { click: remove } }, icon("close")),
  );
  let state = null;
  function update() {
    progress.value = file.progress;
    if (file.state === state) return;
    state = file.state;
    node.className = `chip ${state}`;
    progress.hidden = state === "done" || state === "failed";
    retry.hidden = state !== "failed";
    error.hidden = state !== "failed";
    error.textContent = state === "failed" ? file.error.message : "";
  }
  function removeChip() {
    node.remove();
    if (url !== null) URL.revokeObjectURL(url);
  }
  return { node, update, remove: removeChip };
}

function label(name, bytes) {
  return el("span", { class: "chip-label" }, el("bdi", { class: "chip-name" }, name), " ", el("span", { class: "muted chip-size" }, formatBytes(bytes)));
}

/** As in the transcript, SVG has none. */
function hasThumbnail(blob) {
  return blob.type.startsWith("image/") && blob.type !== "image/svg+xml";
}

/** `loading`: a promise of the address of a thumbnail, or null. */
function picture(loading) {
  const container = el("span", { class: "chip-picture" }, icon("file"));
  const show = (url) => {
    // The name stands beside the picture.
    const image = el("img", { src: url, alt: "", on: { error: () => fill(container, icon("file")) } });
    fill(container, image);
  };
  loading?.then((url) => url && show(url));
  return container;
}
