// The ways to attach files to a message: the button, dropping and pasting.

import { el } from "../dom.js";
import { icon } from "../icons.js";
import { notice } from "../notices.js";
import { acceptDrops } from "../skills/drop_zone.js";

export function attachButton(add) {
  const input = el("input", { type: "file", multiple: true, hidden: true, "aria-label": "Files" });
  input.addEventListener("change", () => {
    add([...input.files]);
    // Reset, so that choosing the same file again fires another event.
    input.value = "";
  });
  const button = el("button", { type: "button", class: "attach icon-button", "aria-label": "Attach files", title: "Attach files", on: { click: () => input.click() } }, icon("attach"));
  return [button, input];
}

/** Text wins if the clipboard has both, as after copying from a document. */
export function onPaste(event, add) {
  const { files, types } = event.clipboardData;
  if (files.length === 0 || types.includes("text/plain")) return;
  event.preventDefault();
  add([...files]);
}

export function attachDrops(zone, signal, add) {
  acceptDrops(zone, signal, (transfer) => {
    // Must be read synchronously: the transfer is emptied after the event.
    const items = [...transfer.items].filter(({ kind }) => kind === "file");
    const files = items.filter((item) => !item.webkitGetAsEntry?.()?.isDirectory).map((item) => item.getAsFile());
    if (files.length < items.length) notice("Folders cannot be attached. Attach their files, or an archive.");
    add(files.filter(Boolean));
  });
}
