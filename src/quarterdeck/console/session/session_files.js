// Files of a session, from its folder or attached to a message: where their contents are, thumbnails, downloads.

import { ApiError, apiUrl, get, send } from "../api.js";
import { tokenSessionId } from "../credential.js";
import { notice } from "../notices.js";
import { saveBlob } from "../transfer.js";
import { visibleText } from "../visible_text.js";
import { openViewer } from "./file_viewer.js";

// Only these are shown as images. SVG is a document that can contain scripts; it is shown as text.
const IMAGE_TYPES = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp", avif: "image/avif", bmp: "image/bmp" };
const MAX_THUMBNAIL_BYTES = 10 * 1024 * 1024;

export class SessionFiles {
  #path;
  #signal;
  /** Promise of the address of each thumbnail, by its hash. */
  #thumbnails = new Map();

  constructor(sessionId, signal) {
    this.#path = `/sessions/${sessionId}/files`;
    this.#signal = signal;
    signal.addEventListener("abort", () => {
      for (const loaded of this.#thumbnails.values()) loaded.then((url) => url && URL.revokeObjectURL(url));
    });
  }

  /** `entry`: of the list of files. */
  viewEntry(entry) {
    this.#view({ ...entry, name: baseName(entry.path), sources: [this.#inFolder(entry.path)] });
  }

  /** Shows the file of a tool call, whose path the model wrote. */
  async viewPath(path) {
    const clean = path.replace(/^\/files\//, "").replace(/^(?:\.\/)+/, "");
    try {
      const { items } = await get(this.#path, { prefix: clean, limit: 1 }, this.#signal);
      if (items[0]?.path === clean && items[0].kind === "file") this.viewEntry(items[0]);
      else notice(`${visibleText(clean)} is not among the files of this session.`);
    } catch (error) {
      if (!this.#signal.aborted) notice(error.message);
    }
  }

  viewAttachment(attachment) {
    this.#view(this.#attached(attachment));
  }

  async saveAttachment(attachment) {
    try {
      await this.#save(this.#attached(attachment));
    } catch (error) {
      if (!this.#signal.aborted) notice(error.message);
    }
  }

  /** A promise of the address of a thumbnail, which is null if it cannot be loaded. Null if the file is no image. */
  thumbnail(attachment) {
    const type = imageType(attachment.name, attachment.media_type);
    if (type === null || attachment.bytes > MAX_THUMBNAIL_BYTES) return null;
    const key = attachment.sha256;
    if (!this.#thumbnails.has(key)) {
      const load = async () => URL.createObjectURL(await readImage(await fetchFile(this.#attached(attachment), { signal: this.#signal }), type));
      this.#thumbnails.set(key, load().catch(() => null));
    }
    return this.#thumbnails.get(key);
  }

  #view(file) {
    const image = imageType(file.name, file.media_type ?? null);
    const load = async (headers = {}) => fetchFile(file, { headers, signal: this.#signal });
    const loadImage = image && (async () => readImage(await load(), image));
    openViewer({ ...file, load, loadImage, save: () => this.#save(file) }, this.#signal);
  }

  async #save(file) {
    const response = await fetchFile(file, { signal: this.#signal });
    saveBlob(await response.blob(), file.name);
    notice(`${visibleText(file.name)} was downloaded.`);
  }

  /** A session token reads only the files of the session. A deleted upload is still among them. */
  #attached(attachment) {
    const sources = [tokenSessionId() === null && { path: `/files/${attachment.file_id}/content`, query: {} }, attachment.path && this.#inFolder(attachment.path)];
    return { ...attachment, sources: sources.filter(Boolean) };
  }

  #inFolder(path) {
    return { path: `${this.#path}/content`, query: { path } };
  }
}

/** Reads the first source that exists. */
async function fetchFile({ sources }, { headers = {}, signal }) {
  for (const [index, { path, query }] of sources.entries()) {
    try {
      return await send("GET", apiUrl(path, query), { headers, signal });
    } catch (error) {
      if (error.status !== 404 || index === sources.length - 1) throw error;
    }
  }
  throw new ApiError(404, "not_found", "This file cannot be read with a session token.", null);
}

/** The type comes from our list, so that the browser never takes the content for a document. */
async function readImage(response, type) {
  return new Blob([await response.arrayBuffer()], { type });
}

function imageType(name, mediaType) {
  const extension = name.slice(name.lastIndexOf(".") + 1).toLowerCase();
  if (mediaType === null) return IMAGE_TYPES[extension] ?? null;
  return Object.values(IMAGE_TYPES).find((type) => type === mediaType) ?? null;
}

function baseName(path) {
  return path.slice(path.lastIndexOf("/") + 1);
}
