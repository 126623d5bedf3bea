// The event log of a session as a live stream: Server-Sent Events over fetch, because EventSource cannot send headers.

import { ApiError, apiUrl, backoffMs, send, sleep, unreachableError } from "./api.js";

// The server sends a heartbeat every 15 s. After three missed heartbeats the connection is considered dead.
const SILENCE_MAX_MS = 45_000;

/**
 * Yields `{type, data}` for each event until the signal is aborted, without gaps or duplicates. Reconnects after the
 * last received event; calls `onConnection(isConnected)` when the state of the connection changes. Throws errors that
 * are not retryable.
 */
export async function* streamEvents(path, after, signal, onConnection) {
  let position = after;
  for (let attempt = 0; ; ) {
    let retryAfterMs = 0;
    const onOpen = () => { attempt = 0; onConnection(true); };
    try {
      for await (const message of connect(path, position, signal, onOpen)) {
        if (message.id !== null) position = message.id;
        yield { type: message.event, data: JSON.parse(message.data) };
      }
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof ApiError) || !error.isRetryable) throw error;
      // Proxies end long streams. Report a lost connection only if the first reconnect fails.
      if (attempt > 0) onConnection(false);
      retryAfterMs = error.retryAfterMs ?? 0;
    }
    attempt += 1;
    await sleep(Math.max(retryAfterMs, backoffMs(attempt)), signal);
  }
}

async function* connect(path, after, signal, onOpen) {
  const timeout = new AbortController();
  const either = AbortSignal.any([signal, timeout.signal]);
  let timer = setTimeout(() => timeout.abort(), SILENCE_MAX_MS);
  try {
    const headers = { Accept: "text/event-stream", "Last-Event-ID": String(after) };
    const response = await send("GET", apiUrl(path), { headers, signal: either });
    onOpen();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const parse = messageParser();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => timeout.abort(), SILENCE_MAX_MS);
      yield* parse(value);
    }
  } catch (error) {
    signal.throwIfAborted();
    throw error instanceof ApiError ? error : unreachableError();
  } finally {
    clearTimeout(timer);
    timeout.abort();
  }
}

/** Parses chunks of a stream into messages. The server ends lines with `\n` only. */
function messageParser() {
  let rest = "";
  return function* parse(chunk) {
    const parts = (rest + chunk).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const message = { id: null, event: "message", data: null };
      for (const line of part.split("\n")) {
        const colon = line.indexOf(": ");
        if (colon > 0) message[line.slice(0, colon)] = line.slice(colon + 2);
      }
      if (message.data !== null) yield message;
    }
  };
}
