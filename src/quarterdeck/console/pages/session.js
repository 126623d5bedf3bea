// One session: what is said in it, as it is said, and a place to take part.

import { all, get } from "../api.js";
import { can, onlySession } from "../credential.js";
import { el, fill } from "../dom.js";
import { follow } from "../following.js";
import { emptyBox, faultBox, loading } from "../notices.js";
import { menu, nameOf } from "../session/changing.js";
import { composer } from "../session/composer.js";
import { connection } from "../session/connection.js";
import { Conversation } from "../session/conversation.js";
import { facts } from "../session/facts.js";
import { outboxOf } from "../session/outbox.js";
import { share } from "../session/sharing.js";
import { timeline } from "../session/timeline.js";
import { Transcript } from "../session/transcript.js";

const SAID_CHARACTERS = 300;
const FIRST = "Write a message below: it starts a run. Write another while it works, and it steers the run.";

export async function show(view, { id }) {
  fill(view.main, loading("the session"));
  const path = `/sessions/${encodeURIComponent(id)}`;
  const conversation = new Conversation();
  const { signal } = view;
  const [session] = await Promise.all([get(path, {}, signal), catchUp(path, conversation, signal)]);
  if (!signal.aborted) new SessionPage(view, session, conversation).open();
}

/** The log up to its current end: what comes behind it comes live. */
async function catchUp(path, conversation, signal) {
  for await (const event of all(`${path}/events`, {}, signal)) conversation.event(event);
}

function mayTalk() {
  return can("session.manage") || onlySession() !== null;
}

class SessionPage {
  #view;
  #session;
  #conversation;
  #transcript;
  #timeline;
  #composer = null;
  #connection;
  #outbox;
  #drawing = false;
  #head = el("div", {});
  #foot = el("div", { class: "foot" });
  #empty = emptyBox("Nothing was said yet", mayTalk() && el("p", {}, FIRST));
  #said = el("p", { class: "unseen", role: "status", "aria-live": "polite" });
  #jump = el("button", { type: "button", class: "jump", on: { click: () => this.#jumpToEnd() } }, "Jump to the newest");

  constructor(view, session, conversation) {
    this.#view = view;
    this.#session = session;
    this.#conversation = conversation;
    this.#transcript = new Transcript(conversation, view.signal, () => this.#showJump());
    this.#timeline = timeline(conversation.runs, view.signal);
    this.#connection = connection();
    this.#outbox = outboxOf(session.id);
  }

  open() {
    const { signal } = this.#view;
    for (const entry of this.#outbox.entries) this.#conversation.send(entry, true);
    this.#outbox.listener = this;
    signal.addEventListener("abort", () => { if (this.#outbox.listener === this) this.#outbox.listener = null; });
    this.#drawFrame();
    fill(
      this.#view.main,
      this.#said,
      this.#head,
      el(
        "div",
        { class: "session" },
        el(
          "aside",
          { "aria-label": "About this session" },
          el("h2", {}, "Runs"),
          this.#timeline.node,
          facts(this.#session, signal),
        ),
        el("div", { class: "talk" }, this.#empty, this.#transcript.node, this.#foot),
      ),
    );
    this.#draw();
    this.#composer?.ready();
    this.#follow();
  }

  // --- what the outbox tells ---

  accepted(entry, { outcome, run_id: runId }) {
    this.#conversation.answered(entry, outcome, runId);
    this.#changed();
  }

  returned(entries, fault) {
    for (const entry of entries) this.#conversation.refused(entry);
    this.#changed();
    this.#composer?.returned(fault);
  }

  // --- what is shown ---

  #drawFrame() {
    const session = this.#session;
    const isArchived = session.archived_at !== null;
    const changed = (now) => {
      this.#session = now;
      this.#drawFrame();
      this.#draw();
      this.#head.querySelector("h1").focus();
    };
    const actions = can("session.manage") && [
      el("button", { type: "button", on: { click: () => share(session.id, this.#view.signal) } }, "Share"),
      menu(session, changed),
    ];
    const tag = isArchived && el("span", { class: "tag" }, "archived");
    fill(this.#head, this.#view.title(nameOf(session), tag, actions));
    this.#composer = mayTalk() ? composer(session.id, this.#view.signal, (text) => this.#send(text), isArchived) : null;
    const readOnly = "Your key may read here and not write: it lacks session.manage.";
    const below = this.#composer?.node ?? el("p", { class: "card quiet" }, readOnly);
    fill(this.#foot, this.#jump, this.#connection.node, below);
  }

  #send(text) {
    this.#conversation.send(this.#outbox.put(text));
    this.#transcript.toEnd();
    this.#changed();
  }

  async #follow() {
    const { signal } = this.#view;
    const path = `/sessions/${this.#session.id}/events`;
    const told = (isConnected) => {
      if (isConnected) this.#conversation.resumed();
      this.#connection.told(isConnected);
      this.#changed();
    };
    try {
      for await (const { type, data } of follow(path, this.#conversation.position, signal, told)) {
        if (type === "message.delta") this.#conversation.delta(data);
        else this.#conversation.event(data);
        this.#changed();
      }
    } catch (fault) {
      if (signal.aborted) return;
      // What is typed stays: it may be wanted elsewhere.
      this.#foot.prepend(faultBox(fault));
    }
  }

  /** A thousand events in a moment are drawn once. */
  #changed() {
    if (this.#drawing) return;
    this.#drawing = true;
    requestAnimationFrame(() => {
      this.#drawing = false;
      if (!this.#view.signal.aborted) this.#draw();
    });
  }

  #draw() {
    const conversation = this.#conversation;
    this.#empty.hidden = conversation.blocks.length + conversation.waiting.length > 0;
    this.#composer?.update(conversation);
    this.#timeline.draw();
    this.#transcript.draw();
    this.#showJump();
    const words = conversation.takeWords();
    if (words.length > 0) this.#said.textContent = words.map((text) => text.slice(0, SAID_CHARACTERS)).join(" ");
  }

  #showJump() {
    this.#jump.hidden = this.#transcript.atEnd;
  }

  #jumpToEnd() {
    this.#transcript.toEnd();
    this.#showJump();
    this.#foot.querySelector("textarea")?.focus({ preventScroll: true });
  }
}
