// A dialog that shows a file: text with its colours, an image, or the facts about other files.

import { copyButton } from "../clipboard.js";
import { el, fill, uniqueId } from "../dom.js";
import { formatBytes, pluralize } from "../format.js";
import { icon } from "../icons.js";
import { errorBox, loading } from "../notices.js";
import { formatDateTime } from "../time_format.js";
import { visibleLines, visibleName, visibleText } from "../visible_text.js";
import { highlighted } from "./markdown.js";

// Of a longer text the beginning is shown.
const MAX_TEXT_BYTES = 256 * 1024;
const MAX_IMAGE_BYTES = 32 * 1024 * 1024;
const LANGUAGES = { dockerfile: "dockerfile", makefile: "makefile", "cmakelists.txt": "cmake" };

/**
 * `file`: `{name, path, bytes, media_type, sha256, modified_at}`; `path` is null if it is no file of the session. `load(headers)`
 * returns a response with the content, `loadImage()` a blob (null: the file is no image); `save()` downloads it.
 */
export function openViewer(file, signal) {
  const title = visibleName(file.path ?? file.name);
  const headingId = uniqueId("viewer");
  const body = el("div", { class: "viewer-body" }, loading("file"));
  const stopping = new AbortController();
  const dialog = el(
    "dialog",
    { class: "viewer", "aria-labelledby": headingId, on: { close: () => { stopping.abort(); dialog.remove(); } } },
    el(
      "div",
      { class: "file-head" },
      el("h2", { id: headingId, tabindex: "-1" }, el("bdi", {}, title)),
      el("span", { class: "muted" }, formatBytes(file.bytes)),
      file.path && el("span", { class: "copy-path" }, copyButton(file.path, "path", "Copy path")),
      saveButton(file, body),
      el("button", { type: "button", class: "small icon-button", "aria-label": "Close", title: "Close", on: { click: () => dialog.close() } }, icon("close")),
    ),
    body,
  );
  signal.addEventListener("abort", () => dialog.close(), { signal: stopping.signal });
  document.body.append(dialog);
  dialog.showModal();
  const show = async () => {
    fill(body, loading("file"));
    try {
      fill(body, await content(file, stopping.signal));
    } catch (error) {
      if (!stopping.signal.aborted) fill(body, errorBox(error, show));
    }
  };
  show();
}

function saveButton(file, body) {
  const save = async () => {
    button.disabled = true;
    try {
      await file.save();
    } catch (error) {
      body.prepend(errorBox(error));
    } finally {
      button.disabled = false;
      button.focus();
    }
  };
  const button = el("button", { type: "button", class: "small", on: { click: save } }, "Download");
  return button;
}

async function content(file, signal) {
  if (file.loadImage && file.bytes <= MAX_IMAGE_BYTES) return image(file, await file.loadImage(), signal);
  if (/\.pdf$/i.test(file.name) || file.media_type === "application/pdf") return facts(file, "Download this PDF to read it.");
  const isLong = file.bytes > MAX_TEXT_BYTES;
  const response = await file.load(isLong ? { Range: `bytes=0-${MAX_TEXT_BYTES - 1}` } : {});
  const text = decodeText(await response.arrayBuffer(), isLong);
  if (text === null) return facts(file, "This is a binary file.");
  if (text === "") return el("p", { class: "muted" }, "This file is empty.");
  const note = isLong && el("p", { class: "muted" }, `The first ${formatBytes(MAX_TEXT_BYTES)} of ${formatBytes(file.bytes)}. Download the file to read the rest.`);
  return [note, code(text, file)];
}

function image(file, blob, signal) {
  const url = URL.createObjectURL(blob);
  signal.addEventListener("abort", () => URL.revokeObjectURL(url));
  const container = el("div", { class: "viewer-image" });
  const failed = () => fill(container, facts(file, "This image cannot be displayed."));
  return fill(container, el("img", { src: url, alt: visibleName(file.name), on: { error: failed } }));
}

function code(text, { name, path }) {
  const shown = visibleLines(text.replace(/\r\n/g, "\n").replace(/\n$/, ""));
  const count = shown.split("\n").length;
  const numbers = Array.from({ length: count }, (_, index) => index + 1).join("\n");
  const language = LANGUAGES[name.toLowerCase()] ?? name.slice(name.lastIndexOf(".") + 1).toLowerCase();
  return el(
    "div",
    { class: "code-view", role: "region", tabindex: "0", "aria-label": `Contents of ${visibleText(path ?? name)}, ${pluralize(count, "line")}` },
    el("pre", { class: "numbers", "aria-hidden": "true" }, numbers),
    el("pre", {}, el("code", {}, highlighted(shown, language))),
  );
}

/** Returns null for binary data. `isCut`: the last character may be incomplete. */
function decodeText(buffer, isCut) {
  const bytes = new Uint8Array(buffer);
  if (bytes.includes(0)) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: isCut });
  } catch {
    return null;
  }
}

function facts(file, reason) {
  const rows = [
    file.media_type && ["Type", file.media_type],
    ["Size", `${formatBytes(file.bytes)} (${pluralize(file.bytes, "byte")})`],
    file.modified_at && ["Changed", formatDateTime(file.modified_at)],
    file.sha256 && ["SHA-256", [el("code", {}, file.sha256), " ", copyButton(file.sha256, "SHA-256")]],
  ];
  const list = rows.filter(Boolean).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]);
  return el("div", {}, el("p", {}, reason), el("dl", { class: "facts" }, list));
}
