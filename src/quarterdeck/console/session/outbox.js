// Inputs on their way to the server, for each session: one after the other, each with one Idempotency-Key however often
// it is sent, and for as long as it takes. They go out also when the page is left.

import { ApiError, call, freshKey, pause } from "../api.js";
import { draft, keepDraft } from "./drafts.js";

const FIRST_PAUSE_MS = 250;
// A person is waiting: a server that is back is to be noticed soon.
const LONGEST_PAUSE_MS = 2000;

const outboxes = new Map();

window.addEventListener("quarterdeck:sign-out", () => {
  for (const outbox of outboxes.values()) outbox.stop();
  outboxes.clear();
});

export function outboxOf(sessionId) {
  if (!outboxes.has(sessionId)) outboxes.set(sessionId, new Outbox(sessionId));
  return outboxes.get(sessionId);
}

class Outbox {
  /** `{key, text, isStored}`, the first being sent. Stored: the log holds it, whatever became of the answer. */
  entries = [];
  /** The page that shows the session, if one does: `accepted(entry, answer)`, `returned(entries, fault)`. */
  listener = null;

  #sessionId;
  #stopping = new AbortController();

  constructor(sessionId) {
    this.#sessionId = sessionId;
  }

  put(text) {
    const entry = { key: freshKey(), text, isStored: false };
    this.entries.push(entry);
    if (this.entries.length === 1) this.#sendAll();
    return entry;
  }

  /** Nothing more goes out, and nothing is given back. */
  stop() {
    this.#stopping.abort();
  }

  async #sendAll() {
    const { signal } = this.#stopping;
    while (this.entries.length > 0) {
      const [entry] = this.entries;
      try {
        const answer = await this.#sent(entry, signal);
        this.entries.shift();
        this.listener?.accepted(entry, answer);
      } catch (fault) {
        if (signal.aborted) return;
        this.#giveBack(fault);
      }
    }
  }

  async #sent({ key, text }, signal) {
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
    const given = this.entries.splice(0).filter((one) => !one.isStored);
    const texts = [...given.map((one) => one.text), draft(this.#sessionId)].filter((text) => text !== "");
    keepDraft(this.#sessionId, texts.join("\n\n"));
    this.listener?.returned(given, fault);
  }
}
