// Bytes up and down, with their progress.

import { address, apiError, send, unreachable } from "./api.js";
import { secret } from "./credential.js";

/** Send a file. `progress(share)` goes from 0 to 1; fetch does not tell how far an upload is, so this is older. */
export function upload(path, blob, { type, key, progress, signal }) {
  return new Promise((done, fail) => {
    const request = new XMLHttpRequest();
    const used = secret();
    request.open("POST", address(path));
    request.setRequestHeader("Authorization", `Bearer ${used}`);
    request.setRequestHeader("Content-Type", type);
    request.setRequestHeader("Idempotency-Key", key);
    request.upload.addEventListener("progress", (event) => {
      if (event.lengthComputable) progress(event.loaded / event.total);
    });
    request.addEventListener("load", () => {
      const body = parsed(request.responseText);
      if (request.status >= 200 && request.status < 300 && body !== null) done(body);
      else fail(apiError(request.status, body?.error, (name) => request.getResponseHeader(name), used));
    });
    request.addEventListener("error", () => fail(unreachable()));
    request.addEventListener("abort", () => fail(new DOMException("The upload was stopped.", "AbortError")));
    signal?.throwIfAborted();
    signal?.addEventListener("abort", () => request.abort(), { once: true });
    request.send(blob);
  });
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Fetch a file and hand it to the person under this name. */
export async function download(path, query, name) {
  const response = await send("GET", address(path, query));
  const url = URL.createObjectURL(await response.blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The browser has taken it by then.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
