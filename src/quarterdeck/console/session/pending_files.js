// Files that were added to a message which is not sent yet, and their uploads. Kept in memory as the drafts are.

import { newIdempotencyKey, remove } from "../api.js";
import { upload } from "../transfer.js";

const PARALLEL_UPLOADS = 2;
/** @type {Map<string, PendingFiles>} */
const all = new Map();

window.addEventListener("quarterdeck:sign-out", () => {
  for (const files of all.values()) files.clear();
  all.clear();
});

export function pendingFiles(sessionId) {
  if (!all.has(sessionId)) all.set(sessionId, new PendingFiles());
  return all.get(sessionId);
}

class PendingFiles {
  /**
   * `{name, bytes, blob, state, progress, error, attachment}`. `state`: "waiting", "uploading", "failed" or "done".
   * `blob` is null if the file was uploaded earlier; `attachment` is null until it is uploaded.
   */
  files = [];
  /** Called after each change, by the composer that shows them. */
  onChange = () => {};

  get isUploading() {
    return this.files.some(({ state }) => state === "waiting" || state === "uploading");
  }

  get hasFailed() {
    return this.files.some(({ state }) => state === "failed");
  }

  add(blobs) {
    const added = blobs.map((blob) => ({ name: blob.name || "file", bytes: blob.size, blob, key: newIdempotencyKey(), state: "waiting", progress: 0, error: null, attachment: null, stopping: new AbortController() }));
    this.files.push(...added);
    this.#uploadNext();
  }

  /** Adds files that are uploaded already: of a refused message, or of one that is edited. */
  restore(attachments) {
    const isNew = ({ file_id: id }) => this.files.every(({ attachment }) => attachment?.file_id !== id);
    const restored = attachments.filter(isNew).map((attachment) => ({ name: attachment.name, bytes: attachment.bytes, blob: null, state: "done", progress: 1, error: null, attachment }));
    this.files.unshift(...restored);
    this.onChange();
  }

  retry(file) {
    Object.assign(file, { state: "waiting", progress: 0, error: null });
    this.#uploadNext();
  }

  remove(file) {
    this.files = this.files.filter((one) => one !== file);
    file.stopping?.abort();
    // An earlier message may have the others. The server deletes files that no message uses after a while.
    if (file.blob !== null && file.attachment !== null) remove(`/files/${file.attachment.file_id}`).catch(() => {});
    this.#uploadNext();
  }

  /** Returns the attachments for the message that is being sent. All uploads must be done. */
  take() {
    const taken = this.files.map((file) => file.attachment);
    this.files = [];
    this.onChange();
    return taken;
  }

  clear() {
    for (const file of this.files) file.stopping?.abort();
    this.files = [];
  }

  #uploadNext() {
    const active = this.files.filter(({ state }) => state === "uploading").length;
    const next = this.files.filter(({ state }) => state === "waiting").slice(0, PARALLEL_UPLOADS - active);
    for (const file of next) this.#upload(file);
    this.onChange();
  }

  async #upload(file) {
    file.state = "uploading";
    const progress = (fraction) => {
      file.progress = fraction;
      this.onChange();
    };
    const options = { query: { name: file.name }, type: file.blob.type || "application/octet-stream", key: file.key, progress, signal: file.stopping.signal };
    try {
      const { id, name, media_type: mediaType, bytes, sha256 } = await upload("/files", file.blob, options);
      Object.assign(file, { state: "done", progress: 1, attachment: { file_id: id, name, media_type: mediaType, bytes, sha256, path: null } });
    } catch (error) {
      if (file.stopping.signal.aborted) return;
      Object.assign(file, { state: "failed", error });
    }
    this.#uploadNext();
  }
}
