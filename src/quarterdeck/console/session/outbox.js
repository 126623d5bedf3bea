// Sends the inputs of a session one after the other, also after the user has left the page. Each input keeps its
// Idempotency-Key over all retries.

import { ApiError, call, newIdempotencyKey, sleep } from "../api.js";
import { draft, setDraft } from "./drafts.js";
import { pendingFiles } from "./pending_files.js";

const BACKOFF_START_MS = 250;
// Short, because the user is waiting for the message to be sent.
const BACKOFF_MAX_MS = 2000;

const outboxes = new Map();

window.addEventListener("quarterdeck:sign-out", () => {
  for (const outbox of outboxes.values()) outbox.stop();
  outboxes.clear();
});

export function getOutbox(sessionId) {
  if (!outboxes.has(sessionId)) outboxes.set(sessionId, new Outbox(sessionId));
  return outboxes.get(sessionId);
}

class Outbox {
  /** `{key, text, delivery, attachments, isBatch, isStored}`; the first is being sent. `isStored`: the log contains it, even if the response was lost. */
  entries = [];
  /** The page that shows the session: `accepted(entry, response)`, `refused(entries, error)`. Null if none does. */
  listener = null;

  #sessionId;
  #stopping = new AbortController();

  constructor(sessionId) {
    this.#sessionId = sessionId;
  }

  /** `delivery`: what happens during a run: "steer", "queue" or "interrupt". `attachments`: as in the event of an input. `isBatch`: the run that it starts may take hours. */
  put(text, delivery, attachments, isBatch) {
    const entry = { key: newIdempotencyKey(), text, delivery, attachments, isBatch, isStored: false };
    this.entries.push(entry);
    if (this.entries.length === 1) this.#sendAll();
    return entry;
  }

  stop() {
    this.#stopping.abort();
  }

  async #sendAll() {
    const { signal } = this.#stopping;
    while (this.entries.length > 0) {
      const [entry] = this.entries;
      try {
        const response = await this.#send(entry, signal);
        this.entries.shift();
        this.listener?.accepted(entry, response);
      } catch (error) {
        if (signal.aborted) return;
        this.#restoreDraft(error);
      }
    }
  }

  /** Retries without a limit. */
  async #send({ key, text, delivery, attachments, isBatch }, signal) {
    const ids = attachments.map((one) => one.file_id);
    for (let delayMs = BACKOFF_START_MS; ; delayMs = Math.min(BACKOFF_MAX_MS, 2 * delayMs)) {
      try {
        const choices = { ...(delivery !== "steer" && { delivery }), ...(isBatch && { priority: "batch" }) };
        const body = { type: "input", text, ...choices, ...(ids.length > 0 && { attachments: ids }) };
        return await call("POST", `/sessions/${this.#sessionId}/events`, { body, key, signal, attempts: 1 });
      } catch (error) {
        if (!(error instanceof ApiError) || !error.isRetryable) throw error;
        await sleep(error.retryAfterMs ?? delayMs * (0.5 + Math.random() / 2), signal);
      }
    }
  }

  /** The refused input and all inputs after it become the draft again, before the text that was typed since. */
  #restoreDraft(error) {
    const unsent = this.entries.splice(0).filter((one) => !one.isStored);
    const texts = [...unsent.map((one) => one.text), draft(this.#sessionId)].filter((text) => text !== "");
    setDraft(this.#sessionId, texts.join("\n\n"));
    pendingFiles(this.#sessionId).restore(unsent.flatMap((one) => one.attachments));
    this.listener?.refused(unsent, error);
  }
}
