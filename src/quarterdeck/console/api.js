// Client for the public API. Errors carry the server's message and the request id.

import { credentialHeaders, credentialRevision } from "./credential.js";

const ROOT = new URL("v1/", document.baseURI);
const MAX_ATTEMPTS = 4;
const BACKOFF_START_MS = 250;
const BACKOFF_MAX_MS = 8000;
// A longer Retry-After is reported as an error instead of being waited for.
const RETRY_AFTER_MAX_MS = 30_000;

export class ApiError extends Error {
  /** `status` is 0 if the server was not reached. */
  constructor(status, code, message, requestId, retryAfterMs = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.requestId = requestId;
    this.retryAfterMs = retryAfterMs;
  }

  get isRetryable() {
    // 408: the request body did not arrive in time.
    return [0, 408, 429].includes(this.status) || this.status >= 500 || this.retryAfterMs !== null;
  }
}

/** @type {(error: ApiError) => void} */
let refused = () => {};
/** Registers the handler of 401 and 404: the credential may have ended, or the membership in the workspace. */
export function onRefused(handler) {
  refused = handler;
}

/** The URL of an API path. Empty query values are omitted. */
export function apiUrl(path, query = {}) {
  const url = new URL(path.replace(/^\//, ""), ROOT);
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  return url;
}

export const get = (path, query, signal) => call("GET", path, { query, signal });
export const post = (path, body, signal) => call("POST", path, { body, signal, key: newIdempotencyKey() });
export const patch = (path, body, signal) => call("PATCH", path, { body, signal, key: newIdempotencyKey() });
/** Not retried: a second DELETE of the same object returns 404. */
export const remove = (path, signal) => call("DELETE", path, { signal, attempts: 1 });

/** Submitting the same form again after a lost response reuses its Idempotency-Key, so nothing is created twice. */
export function idempotentPost(path) {
  let lastBody = null;
  let key = null;
  return (body) => {
    const text = JSON.stringify(body);
    if (text !== lastBody) [lastBody, key] = [text, newIdempotencyKey()];
    return call("POST", path, { body, key });
  };
}

/** `crypto.randomUUID` is not available on pages without TLS. */
export function newIdempotencyKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Sends a request and returns the JSON body of the response. A string as `body` is JSON already. Retryable errors are retried up to `attempts` times.
 * @param {string} method
 * @param {string} path
 * @param {{query?: object, body?: unknown, signal?: AbortSignal, key?: string, attempts?: number}} [options]
 */
export async function call(method, path, options = {}) {
  const { query, body, signal, key, attempts = MAX_ATTEMPTS } = options;
  for (let attempt = 1; ; attempt += 1) {
    try {
      const response = await send(method, apiUrl(path, query), { body, signal, key });
      return response.status === 204 ? null : await readJson(response, signal);
    } catch (error) {
      if (!(error instanceof ApiError) || !error.isRetryable || attempt >= attempts) throw error;
      if (error.retryAfterMs > RETRY_AFTER_MAX_MS) throw error;
      await sleep(error.retryAfterMs ?? backoffMs(attempt), signal);
    }
  }
}

/** A truncated body counts as an unreachable server, so the request is retried. */
async function readJson(response, signal) {
  try {
    return await response.json();
  } catch (error) {
    throw signal?.aborted ? error : unreachableError();
  }
}

/**
 * Sends one request and returns the response. Throws ApiError unless the status is a success.
 * @param {string} method
 * @param {URL} url
 * @param {{body?: unknown, signal?: AbortSignal, key?: string, headers?: Record<string, string>}} [options]
 */
export async function send(method, url, options = {}) {
  const { body, signal, key, headers = {} } = options;
  const sentRevision = credentialRevision();
  const allHeaders = { ...credentialHeaders(), ...headers };
  if (key) allHeaders["Idempotency-Key"] = key;
  if (body !== undefined) allHeaders["Content-Type"] = "application/json";
  const text = typeof body === "string" ? body : JSON.stringify(body);
  let response;
  try {
    response = await fetch(url, { method, headers: allHeaders, body: text, signal, cache: "no-store", redirect: "error" });
  } catch (error) {
    throw signal?.aborted ? error : unreachableError();
  }
  if (!response.ok) throw await responseError(response, sentRevision);
  return response;
}

export function unreachableError() {
  return new ApiError(0, "unreachable", "The server cannot be reached.", null);
}

async function responseError(response, sentRevision) {
  let body = null;
  try {
    body = await response.json();
  } catch {
    // Not our error format, for example a proxy's error page. Only the status is known.
  }
  return apiError(response.status, body?.error, (name) => response.headers.get(name), sentRevision);
}

/**
 * Builds an ApiError; `header` returns a header by name. The registered handler is not called if the user has signed in with
 * another credential since the request was sent.
 */
export function apiError(status, body, header, sentRevision) {
  const seconds = Number.parseFloat(header("Retry-After"));
  const error = new ApiError(
    status,
    body?.code ?? "unknown",
    status === 426 ? "The server was updated. Reload this page." : (body?.message ?? `The server returned status ${status}.`),
    header("X-Request-Id"),
    Number.isFinite(seconds) ? seconds * 1000 : null,
  );
  if ((status === 401 || status === 404) && sentRevision === credentialRevision()) refused(error);
  return error;
}

/** Exponential backoff with jitter. */
export function backoffMs(attempt) {
  return Math.min(BACKOFF_MAX_MS, BACKOFF_START_MS * 2 ** (attempt - 1)) * (0.5 + Math.random() / 2);
}

/** Rejects as soon as the signal is aborted. */
export function sleep(ms, signal) {
  return /** @type {Promise<void>} */ (new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, ms);
    function abort() {
      clearTimeout(timer);
      reject(signal.reason);
    }
    signal?.addEventListener("abort", abort, { once: true });
  }));
}

/** Yields all items of a paged list. */
export async function* listAll(path, query, signal) {
  let after = null;
  do {
    const page = await get(path, { limit: 200, ...query, after }, signal);
    yield* page.items;
    after = page.next_cursor;
  } while (after !== null);
}
