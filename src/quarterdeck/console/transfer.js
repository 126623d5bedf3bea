// Uploads with progress, and downloads.

import { apiError, apiUrl, send, unreachableError } from "./api.js";
import { credentialHeaders, credentialRevision } from "./credential.js";

/** Uses XMLHttpRequest because fetch does not report upload progress. `progress(fraction)` receives 0 to 1. */
export function upload(path, blob, { query = {}, type, key, progress, signal }) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const sentRevision = credentialRevision();
    request.open("POST", apiUrl(path, query));
    for (const [name, value] of Object.entries(credentialHeaders())) request.setRequestHeader(name, value);
    request.setRequestHeader("Content-Type", type);
    request.setRequestHeader("Idempotency-Key", key);
    request.upload.addEventListener("progress", (event) => {
      if (event.lengthComputable) progress(event.loaded / event.total);
    });
    request.addEventListener("load", () => {
      const body = parseJson(request.responseText);
      if (request.status >= 200 && request.status < 300 && body !== null) resolve(body);
      else reject(apiError(request.status, body?.error, (name) => request.getResponseHeader(name), sentRevision));
    });
    request.addEventListener("error", () => reject(unreachableError()));
    request.addEventListener("abort", () => reject(new DOMException("The upload was stopped.", "AbortError")));
    signal?.throwIfAborted();
    signal?.addEventListener("abort", () => request.abort(), { once: true });
    request.send(blob);
  });
}

function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Fetches a file and saves it under this name. */
export async function download(path, query, name, headers = {}) {
  const response = await send("GET", apiUrl(path, query), { headers });
  saveBlob(await response.blob(), name);
}

export function saveBlob(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The download has started by then; revoking the URL earlier can cancel it.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
