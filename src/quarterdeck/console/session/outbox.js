// Inputs on their way to the server, for each session: one after the other, each with one Idempotency-Key however often
// it is sent, and for as long as it takes. They go out also when the page is left.

import { ApiError, call, pause } from "../api.js";
import { draft, keepDraft } from "./drafts.js";

const FIRST_PAUSE_MS = 250;
// A person is waiting: a server that is back is to be noticed soon.
const LONGEST_PAUSE_MS = 2000;

const outboxes = new Map();

export function outboxOf(sessionId) {
  if (!outboxes.has(sessionId)) outboxes.set(sessionId, new Outbox(sessionId));
  return outboxes.get(sessionId);
}

class Outbox {
  /** `{key, text}`, the first being sent. */
  entries = [];
  /** The page that shows the session, if one does: `accepted(key, answer)`, `returned(keys, fault)`. */
  listener = null;

  #sessionId;
  #stop = new AbortController();

  constructor(sessionId) {
    this.#sessionId = sessionId;
    window.addEventListener("quarterdeck:sign-out", () => this.#forget());
  }

  put(text) {
    const entry = { key: crypto.randomUUID(), text };
    this.entries.push(entry);
    if (this.entries.length === 1) this.#sendAll(this.#stop.signal);
    return entry;
  }

  async #sendAll(signal) {
    while (this.entries.length > 0) {
      const { key, text } = this.entries[0];
      try {
        const answer = await this.#sent(key, text, signal);
        this.entries.shift();
        this.listener?.accepted(key, answer);
      } catch (fault) {
        if (signal.aborted) return;
        this.#giveBack(fault);
      }
    }
  }

  async #sent(key, text, signal) {
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(LONGEST_PAUSE_MS, 2 * pauseMs)) {
      try {
        const body = { type: "input", text };
        return await call("POST", `/sessions/${this.#sessionId}/events`, { body, key, signal, tries: 1 });
      } catch (fault) {
        if (!(fault instanceof ApiError) || !fault.mayPass) throw fault;
        await pause(fault.retryAfterMs ?? pauseMs * (0.5 + Math.random() / 2), signal);
      }
    }
  }

  /** What was refused, and all behind it, is a draft again, before what was typed since: their order is meant. */
  #giveBack(fault) {
    const given = this.entries.splice(0);
    const texts = [...given.map((one) => one.text), draft(this.#sessionId)].filter((text) => text !== "");
    keepDraft(this.#sessionId, texts.join("\n\n"));
    this.listener?.returned(given.map((one) => one.key), fault);
  }

  #forget() {
    this.#stop.abort();
    this.#stop = new AbortController();
    this.entries = [];
  }
}
