// What a file holds: its lines with numbers, or what is known about it where that cannot be shown.

import { address, send } from "../api.js";
import { copyButton } from "../copying.js";
import { el, fill } from "../dom.js";
import { faultBox, loading, notice } from "../notices.js";
import { download } from "../transfer.js";
import { visible } from "../visible.js";
import { bytes, count } from "./words.js";

const MOST_BYTES = 256 * 1024;
const LINES_AT_ONCE = 2000;

/** Into `place`. `path` is the version's; `file` is of its manifest. */
export async function showFile(place, path, file, signal) {
  const body = el("div", {}, loading("the file"));
  const name = file.path.slice(file.path.lastIndexOf("/") + 1);
  const heading = el("h2", { tabindex: "-1" }, el("bdi", {}, visible(file.path)));
  fill(
    place,
    el(
      "div",
      { class: "file-head" },
      heading,
      el("span", { class: "quiet" }, bytes(file.bytes)),
      downloadButton("Download file", `${path}/file`, { path: file.path }, name),
    ),
    body,
  );
  if (file.bytes > MOST_BYTES) return fill(body, facts(file, "It is too large to be shown here."));
  try {
    const response = await send("GET", address(`${path}/file`, { path: file.path }), { signal });
    const text = textOf(await response.arrayBuffer());
    fill(body, text === null ? facts(file, "It is not text.") : lines(text, file.path));
  } catch (fault) {
    if (!signal.aborted)
      fill(
        body,
        faultBox(fault, () => showFile(place, path, file, signal)),
      );
  }
  return heading;
}

/** With the fault below it, if there is one. */
export function downloadButton(text, path, query, name) {
  const fault = el("div", {});
  const button = el("button", { type: "button", class: "small" }, text);
  button.addEventListener("click", async () => {
    button.disabled = true;
    fill(fault);
    try {
      await download(path, query, name);
      notice(`${visible(name)} was downloaded.`);
    } catch (reason) {
      fill(fault, faultBox(reason));
    } finally {
      button.disabled = false;
      button.focus();
    }
  });
  return el("div", { class: "download" }, button, fault);
}

function facts(file, why) {
  return el(
    "div",
    {},
    el("p", {}, why),
    el(
      "dl",
      { class: "facts" },
      el("dt", {}, "Size"),
      el("dd", {}, `${bytes(file.bytes)} (${count(file.bytes, "byte")})`),
      el("dt", {}, "Executable"),
      el("dd", {}, file.executable ? "yes" : "no"),
      el("dt", {}, "SHA-256"),
      el("dd", {}, el("code", {}, file.sha256), " ", copyButton(file.sha256, "the SHA-256")),
    ),
  );
}

/** null: it is no text. */
function textOf(buffer) {
  const found = new Uint8Array(buffer);
  if (found.includes(0)) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(found);
  } catch {
    return null;
  }
}

function lines(text, path) {
  if (text === "") return el("p", { class: "quiet" }, "It is empty.");
  const all = text.split("\n");
  if (all.at(-1) === "") all.pop();
  const crlf = all.every((line) => line.endsWith("\r"));
  const box = el("div", {
    class: "lines",
    role: "region",
    tabindex: "0",
    "aria-label": `Contents of ${visible(path)}`,
  });
  const place = el("div", {}, crlf && el("p", { class: "quiet" }, "Its lines end in CR LF."), box);
  let shown = 0;
  function more() {
    const some = all
      .slice(shown, shown + LINES_AT_ONCE)
      .map((line) => el("div", {}, visible(crlf ? line.slice(0, -1) : line)));
    const block = el("div", { class: "block" }, some);
    block.style.counterReset = `line ${shown}`;
    box.append(block);
    shown += some.length;
    const left = all.length - shown;
    if (left > 0) place.append(moreLines(left, more));
  }
  more();
  return place;
}

function moreLines(left, more) {
  const button = el("button", { type: "button", class: "more" }, `Show more of the other ${count(left, "line")}`);
  button.addEventListener("click", () => {
    button.remove();
    more();
  });
  return button;
}
