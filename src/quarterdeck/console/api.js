// The public API, and nothing but. Errors carry the server's words and the id of the request.

import { onlySession, secret, whoami } from "./credential.js";

const ROOT = new URL("v1/", document.baseURI);
const TRIES = 4;
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 8000;
// A server that asks for more than this is not waited for: the person is told instead.
const LONGEST_ASKED_MS = 30_000;

export class ApiError extends Error {
  /** `status` 0: the server was not reached. */
  constructor(status, code, message, requestId, retryAfterMs = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.requestId = requestId;
    this.retryAfterMs = retryAfterMs;
  }

  /** Whether the same request may be answered otherwise in a while. */
  get mayPass() {
    return this.status === 0 || this.status >= 500 || this.status === 429 || this.retryAfterMs !== null;
  }
}

let refused = () => {};
/** What to do when the credential is no longer accepted. */
export function onRefused(act) {
  refused = act;
}

/** `/sessions`, with a query whose null values are left out. */
export function address(path, query = {}) {
  const url = new URL(path.replace(/^\//, ""), ROOT);
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  return url;
}

export const get = (path, query, signal) => call("GET", path, { query, signal });

/** A change. It may be sent several times and counts once: the key is drawn here. */
export const post = (path, body, signal) => call("POST", path, { body, signal, key: freshKey() });
export const patch = (path, body, signal) => call("PATCH", path, { body, signal, key: freshKey() });

/** An Idempotency-Key. Not by `randomUUID`: browsers keep that from pages without TLS, as in a closed network. */
export function freshKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Deleting again is answered 404, so it is tried once. */
export const remove = (path, signal) => call("DELETE", path, { signal, tries: 1 });

/** The JSON of the answer. Waits out what may pass, for as many tries as given. */
export async function call(method, path, { query, body, signal, key, tries = TRIES } = {}) {
  for (let tried = 1; ; tried += 1) {
    try {
      const response = await send(method, address(path, query), { body, signal, key });
      return response.status === 204 ? null : await whole(response, signal);
    } catch (fault) {
      if (!(fault instanceof ApiError) || !fault.mayPass || tried >= tries) throw fault;
      if (fault.retryAfterMs > LONGEST_ASKED_MS) throw fault;
      await pause(fault.retryAfterMs ?? pauseMs(tried), signal);
    }
  }
}

/** An answer that breaks off is as good as none. */
async function whole(response, signal) {
  try {
    return await response.json();
  } catch (fault) {
    throw signal?.aborted ? fault : unreachable();
  }
}

/** The answer as it is. Whatever is not a success is thrown. */
export async function send(method, url, { body, signal, key, headers = {} } = {}) {
  const used = secret();
  const given = { ...headers, Authorization: `Bearer ${used}` };
  // Lists of keys must be told whose; a token sees no workspace at all.
  if (whoami() !== null && onlySession() === null) given["Service-Workspace"] = whoami().workspace_id;
  if (key) given["Idempotency-Key"] = key;
  if (body !== undefined) given["Content-Type"] = "application/json";
  const text = body === undefined ? undefined : JSON.stringify(body);
  let response;
  try {
    response = await fetch(url, { method, headers: given, body: text, signal, cache: "no-store", redirect: "error" });
  } catch (fault) {
    if (signal?.aborted) throw fault;
    throw unreachable();
  }
  if (!response.ok) throw await faultOf(response, used);
  return response;
}

export function unreachable() {
  return new ApiError(0, "unreachable", "The server cannot be reached.", null);
}

async function faultOf(response, used) {
  let found = null;
  try {
    found = (await response.json()).error;
  } catch {
    // A proxy's page, or an answer cut short: the status has to do.
  }
  return apiError(response.status, found, (name) => response.headers.get(name), used);
}

/**
 * From the parts of an answer; `header` looks one up. Tells the console when the credential is refused, unless another
 * than the one that was `used` has been given since: an answer may come late.
 */
export function apiError(status, error, header, used) {
  const seconds = Number.parseFloat(header("Retry-After"));
  const fault = new ApiError(
    status,
    error?.code ?? "unknown",
    error?.message ?? `The server answered ${status}.`,
    header("X-Request-Id"),
    Number.isFinite(seconds) ? seconds * 1000 : null,
  );
  if (status === 401 && used === secret()) refused(fault);
  return fault;
}

/** Longer each time, and never the same for two tabs. */
export function pauseMs(tried) {
  return Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (tried - 1)) * (0.5 + Math.random() / 2);
}

/** Ends early, by an exception, when the signal says so. */
export function pause(ms, signal) {
  return new Promise((done, fail) => {
    signal?.throwIfAborted();
    const timer = setTimeout(ended, ms);
    function ended() {
      signal?.removeEventListener("abort", aborted);
      done();
    }
    function aborted() {
      clearTimeout(timer);
      fail(signal.reason);
    }
    signal?.addEventListener("abort", aborted, { once: true });
  });
}

/** All items of a list, page after page. */
export async function* all(path, query, signal) {
  let after = null;
  do {
    const page = await get(path, { limit: 200, ...query, after }, signal);
    yield* page.items;
    after = page.next_cursor;
  } while (after !== null);
}
