// The log of a session as it grows: Server-Sent Events over fetch, since EventSource cannot send a credential.

import { ApiError, address, pause, pauseMs, send, unreachable } from "./api.js";

// The server says that it is still there every 15 s; after three such silences the connection is dead.
const SILENCE_MS = 45_000;

/**
 * Yields `{type, data}` for each event, without loss or repetition, until the signal ends it. A broken connection is
 * taken up again where it broke; `told(isConnected)` is called when that changes. Throws what will not pass.
 */
export async function* follow(path, after, signal, told) {
  let position = after;
  for (let tried = 0; ; ) {
    let askedMs = 0;
    try {
      for await (const message of stream(path, position, signal, () => { tried = 0; told(true); })) {
        if (message.id !== null) position = message.id;
        yield { type: message.event, data: JSON.parse(message.data) };
      }
    } catch (fault) {
      signal.throwIfAborted();
      if (!(fault instanceof ApiError) || !fault.mayPass) throw fault;
      // An old stream that a proxy ends is not worth a word; one that cannot be had again is.
      if (tried > 0) told(false);
      askedMs = fault.retryAfterMs ?? 0;
    }
    tried += 1;
    await pause(Math.max(askedMs, pauseMs(tried)), signal);
  }
}

async function* stream(path, after, signal, opened) {
  const silent = new AbortController();
  const either = AbortSignal.any([signal, silent.signal]);
  let timer = setTimeout(() => silent.abort(), SILENCE_MS);
  try {
    const headers = { Accept: "text/event-stream", "Last-Event-ID": String(after) };
    const response = await send("GET", address(path), { headers, signal: either });
    opened();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const parse = parser();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => silent.abort(), SILENCE_MS);
      yield* parse(value);
    }
  } catch (fault) {
    signal.throwIfAborted();
    throw fault instanceof ApiError ? fault : unreachable();
  } finally {
    clearTimeout(timer);
    silent.abort();
  }
}

/** Takes pieces of a stream as they come, gives the messages that they complete. Lines end in `\n` alone here. */
function parser() {
  let rest = "";
  return function* messages(piece) {
    const parts = (rest + piece).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const message = { id: null, event: "message", data: null };
      for (const line of part.split("\n")) {
        const at = line.indexOf(": ");
        if (at > 0) message[line.slice(0, at)] = line.slice(at + 2);
      }
      if (message.data !== null) yield message;
    }
  };
}
