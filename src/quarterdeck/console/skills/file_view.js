// Shows one file of a version: its lines, or its size and hash if it cannot be shown.

import { apiUrl, send } from "../api.js";
import { copyButton } from "../clipboard.js";
import { el, fill } from "../dom.js";
import { formatBytes, pluralize } from "../format.js";
import { errorBox, loading, notice } from "../notices.js";
import { download } from "../transfer.js";
import { visibleText } from "../visible_text.js";

const MAX_BYTES = 256 * 1024;
const LINES_PER_STEP = 2000;

/** Fills `container`. `path` is the API path of the version; `file` is an entry of its manifest. */
export async function showFile(container, path, file, signal) {
  const body = el("div", {}, loading("file"));
  const name = file.path.slice(file.path.lastIndexOf("/") + 1);
  fill(
    container,
    el(
      "div",
      { class: "file-head" },
      el("h2", { tabindex: "-1" }, el("bdi", {}, visibleText(file.path))),
      el("span", { class: "muted" }, formatBytes(file.bytes)),
      downloadButton("Download file", `${path}/file`, { path: file.path }, name),
    ),
    body,
  );
  if (file.bytes > MAX_BYTES) return void fill(body, details(file, "This file is too large to display."));
  try {
    const response = await send("GET", apiUrl(`${path}/file`, { path: file.path }), { signal });
    const text = decodeText(await response.arrayBuffer());
    fill(body, text === null ? details(file, "This is a binary file.") : lines(text, file.path));
  } catch (error) {
    if (!signal.aborted) fill(body, errorBox(error, () => showFile(container, path, file, signal)));
  }
}

export function downloadButton(text, path, query, name) {
  const errorContainer = el("div", {});
  const button = el("button", { type: "button", class: "small" }, text);
  button.addEventListener("click", async () => {
    button.disabled = true;
    fill(errorContainer);
    try {
      await download(path, query, name);
      notice(`${visibleText(name)} was downloaded.`);
    } catch (error) {
      fill(errorContainer, errorBox(error));
    } finally {
      button.disabled = false;
      button.focus();
    }
  });
  return el("div", { class: "download" }, button, errorContainer);
}

function details(file, reason) {
  return el(
    "div",
    {},
    el("p", {}, reason),
    el(
      "dl",
      { class: "facts" },
      el("dt", {}, "Size"),
      el("dd", {}, `${formatBytes(file.bytes)} (${pluralize(file.bytes, "byte")})`),
      el("dt", {}, "Executable"),
      el("dd", {}, file.executable ? "Yes" : "No"),
      el("dt", {}, "SHA-256"),
      el("dd", {}, el("code", {}, file.sha256), " ", copyButton(file.sha256, "SHA-256")),
    ),
  );
}

/** Returns null for binary data. */
function decodeText(buffer) {
  const bytes = new Uint8Array(buffer);
  if (bytes.includes(0)) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}

function lines(text, path) {
  if (text === "") return el("p", { class: "muted" }, "This file is empty.");
  const all = text.split("\n");
  if (all.at(-1) === "") all.pop();
  const isCrLf = all.every((line) => line.endsWith("\r"));
  const box = el("div", {
    class: "lines",
    role: "region",
    tabindex: "0",
    "aria-label": `Contents of ${visibleText(path)}`,
  });
  const container = el("div", {}, isCrLf && el("p", { class: "muted" }, "CRLF line endings"), box);
  let shown = 0;
  function showMore() {
    const nodes = all
      .slice(shown, shown + LINES_PER_STEP)
      .map((line) => el("div", {}, visibleText(isCrLf ? line.slice(0, -1) : line)));
    const block = el("div", { class: "block" }, nodes);
    block.style.counterReset = `line ${shown}`;
    box.append(block);
    shown += nodes.length;
    const left = all.length - shown;
    if (left === 0) return;
    const button = el("button", { type: "button", class: "more" }, `Show more (${pluralize(left, "line")} left)`);
    button.addEventListener("click", () => {
      button.remove();
      showMore();
    });
    container.append(button);
  }
  showMore();
  return container;
}
