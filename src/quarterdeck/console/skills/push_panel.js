// Shows a bundle before the push, the progress of the upload, and errors.

import { ApiError, backoffMs, newIdempotencyKey, sleep } from "../api.js";
import { el, fill } from "../dom.js";
import { formatBytes, pluralize } from "../format.js";
import { errorBox } from "../notices.js";
import { upload } from "../transfer.js";
import { visibleText } from "../visible_text.js";

const MAX_ATTEMPTS = 5;
const MAX_LISTED_FILES = 200;

/** Waits for the user to confirm unless `autoStart`. Ends with `onPushed(version)` or `onCancel()`. */
export function pushPanel({ skill, bundle, autoStart, signal, onPushed, onCancel }) {
  // One key for all attempts: pushing the same bundle again does not create a second version.
  const key = newIdempotencyKey();
  const content = el("div", {});
  const panel = el(
    "section",
    { class: "card push", "aria-label": "Push", tabindex: "-1" },
    el("h2", {}, bundle.files ? "Folder " : "Archive ", el("bdi", {}, visibleText(bundle.source))),
    bundle.files ? folderSummary(bundle) : el("p", {}, formatBytes(bundle.bytes)),
    content,
  );

  function confirm(message = null) {
    const push = el("button", { type: "button", class: "primary", on: { click: send } }, message ? "Retry push" : "Push");
    const cancel = el("button", { type: "button", on: { click: onCancel } }, "Choose another");
    fill(content, message, el("div", { class: "buttons" }, push, cancel));
    push.focus();
  }

  async function send() {
    const stopping = new AbortController();
    const either = AbortSignal.any([signal, stopping.signal]);
    const progress = uploadProgress(() => stopping.abort());
    fill(content, progress.node);
    progress.stop.focus();
    try {
      const archive = await bundle.archive(either);
      progress.setSize(archive.size);
      onPushed(await uploadWithRetries(`/skills/${skill.id}/versions`, archive, key, either, progress));
    } catch (error) {
      if (signal.aborted) return;
      confirm(stopping.signal.aborted ? stoppedMessage() : errorBox(error));
    }
  }

  queueMicrotask(autoStart ? send : confirm);
  return panel;
}

async function uploadWithRetries(path, archive, key, signal, progress) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await upload(path, archive, { type: "application/gzip", key, signal, progress: progress.setFraction });
    } catch (error) {
      if (!(error instanceof ApiError) || !error.isRetryable || attempt === MAX_ATTEMPTS) throw error;
      progress.setStatus(`${error.message} Retrying…`);
      await sleep(error.retryAfterMs ?? backoffMs(attempt), signal);
    }
  }
}

function uploadProgress(onStop) {
  const status = el("p", { role: "status" }, "Packing…");
  const bar = el("progress", { max: 1, "aria-label": "Upload" });
  const stop = el("button", { type: "button", on: { click: onStop } }, "Stop");
  let size = "";
  const setStatus = (text) => {
    // Screen readers announce every change, so set the text only if it differs.
    if (status.textContent !== text) status.textContent = text;
  };
  return {
    node: el("div", {}, status, bar, el("div", { class: "buttons" }, stop)),
    stop,
    setStatus,
    setSize(bytes) {
      size = formatBytes(bytes);
      setStatus(`Uploading ${size}…`);
    },
    setFraction(fraction) {
      bar.value = fraction;
      setStatus(fraction < 1 ? `Uploading ${size}…` : "Processing…");
    },
  };
}

function stoppedMessage() {
  return el("p", { role: "status" }, "Upload stopped. If the server had already received it, the version was created. Retrying does not create it twice.");
}

function folderSummary({ files, bytes, skipped, hasIgnoreFiles }) {
  const more = files.length - MAX_LISTED_FILES;
  return [
    el("p", {}, `${pluralize(files.length, "file")}, ${formatBytes(bytes)}`, skipped > 0 && ` (${skipped.toLocaleString("en")} skipped)`),
    hasIgnoreFiles && ignoreFilesCaution(),
    el(
      "details",
      {},
      el("summary", {}, "Show files"),
      el(
        "ul",
        { class: "names" },
        files
          .slice(0, MAX_LISTED_FILES)
          .map((one) => el("li", {}, el("bdi", {}, visibleText(one.path)), " ", el("span", { class: "muted" }, formatBytes(one.file.size)))),
        more > 0 && el("li", { class: "muted" }, `and ${pluralize(more, "more file")}`),
      ),
    ),
  ];
}

export function ignoreFilesCaution() {
  return el(
    "p",
    { class: "caution" },
    "Ignore files are not read in the browser: files that they exclude are pushed. Use ",
    el("code", {}, "qd skills push"),
    " to apply them.",
  );
}
