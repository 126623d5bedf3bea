// One session: its live transcript, its runs and the composer.

import { get, listAll } from "../api.js";
import { can, reasonAgainst, tokenSessionId } from "../credential.js";
import { el, fill } from "../dom.js";
import { streamEvents } from "../event_stream.js";
import { refreshOpenActions } from "../inbox/open_actions.js";
import { loadPermission } from "../inbox/permission.js";
import { emptyState, errorBox, loading, notice } from "../notices.js";
import { replaceQuery } from "../router.js";
import { attachDrops } from "../session/attach_files.js";
import { composer } from "../session/composer.js";
import { connectionStatus } from "../session/connection_status.js";
import { Conversation } from "../session/conversation.js";
import { editSession } from "../session/edit_dialog.js";
import { FilesPanel } from "../session/files_panel.js";
import { getOutbox } from "../session/outbox.js";
import { pendingFiles } from "../session/pending_files.js";
import { NO_ACTIONS, sessionActions } from "../session/session_actions.js";
import { sessionDetails } from "../session/session_details.js";
import { SessionFiles } from "../session/session_files.js";
import { sessionMenu, sessionTitle } from "../session/session_menu.js";
import { shareDialog } from "../session/share_dialog.js";
import { timeline } from "../session/timeline.js";
import { Transcript } from "../session/transcript.js";
import { setTabActivity } from "../tab.js";

const ANNOUNCED_CHARACTERS = 300;
const EMPTY_HINT = "Send a message to start a run. You can send more messages while it is running.";
// The tokens and the cost of a run are complete, or complete for now.
const USAGE_EVENTS = ["run.succeeded", "run.failed", "run.cancelled", "action.required"];
const REQUEST_EVENTS = ["action.required", "action.resolved"];
const DELTAS = ["message.delta", "tool.delta"];

/** With the query `new`, for a session that was just created, the composer is there before the session is loaded. */
export async function show(view, { id }) {
  const path = `/sessions/${encodeURIComponent(id)}`;
  const conversation = new Conversation();
  const { signal } = view;
  const isNew = view.query.has("new");
  fill(view.main, loading("session"), isNew && earlyComposer(id, signal, conversation).node);
  if (isNew) replaceQuery({});
  view.main.querySelector("textarea")?.focus();
  const [session, runs] = await Promise.all([
    get(path, {}, signal),
    // The newest runs, for their tokens.
    get(`${path}/runs`, { limit: 200 }, signal),
    loadEvents(path, conversation, signal),
    loadPermission(signal),
  ]);
  for (const run of runs.items) conversation.setRun(run);
  if (!signal.aborted) new SessionPage(view, session, conversation).open(isNew);
}

/** What is typed is the draft, and what is sent is in the outbox: the page takes over both. */
function earlyComposer(sessionId, signal, conversation) {
  const send = (text, delivery, attachments, isBatch) => getOutbox(sessionId).put(text, delivery, attachments, isBatch);
  const early = composer({ sessionId, signal, send, files: null, isArchived: false, more: null });
  early.update(conversation);
  return early;
}

/** Loads the stored log. Later events come from the stream. */
async function loadEvents(path, conversation, signal) {
  for await (const event of listAll(`${path}/events`, {}, signal)) conversation.event(event);
}

function canWrite() {
  return can("session.manage") || tokenSessionId() !== null;
}

class SessionPage {
  #view;
  #session;
  #conversation;
  #transcript;
  #timeline;
  #composer = null;
  #connection = connectionStatus();
  #outbox;
  #isDrawScheduled = false;
  #header = el("div", {});
  #details = el("div", {});
  #setUsage = (_usage) => {};
  #files;
  #filesPanel;
  #footer = el("div", { class: "conversation-footer" });
  #empty = emptyState("No messages yet", canWrite() && el("p", {}, EMPTY_HINT));
  #announcer = el("p", { class: "visually-hidden", role: "status", "aria-live": "polite" });
  #jump = el("button", { type: "button", class: "jump", on: { click: () => this.#jumpToEnd() } }, "Jump to latest");

  constructor(view, session, conversation) {
    this.#view = view;
    this.#session = session;
    this.#conversation = conversation;
    const onError = (error) => this.#composer.showError(error);
    const answered = (action) => { conversation.answered(action); this.#scheduleDraw(); };
    this.#files = new SessionFiles(session.id, view.signal);
    this.#filesPanel = new FilesPanel(session, this.#files, view.signal);
    const actions = { ...(canWrite() ? sessionActions(session.id, view.signal, onError) : NO_ACTIONS), answered, files: this.#files };
    this.#transcript = new Transcript(conversation, actions, view.signal, () => this.#updateJump());
    this.#timeline = timeline(conversation.runs, view.signal);
    this.#outbox = getOutbox(session.id);
  }

  open(isNew) {
    const { signal } = this.#view;
    for (const entry of this.#outbox.entries) this.#conversation.send(entry, true);
    this.#outbox.listener = this;
    signal.addEventListener("abort", () => { if (this.#outbox.listener === this) this.#outbox.listener = null; });
    this.#drawSession();
    const conversation = el("div", { class: "conversation" }, this.#empty, this.#transcript.node, this.#footer);
    attachDrops(conversation, signal, (blobs) => this.#attach(blobs));
    fill(
      this.#view.main,
      this.#announcer,
      this.#header,
      el(
        "div",
        { class: "session" },
        el(
          "aside",
          { "aria-label": "About this session" },
          this.#filesPanel.node,
          el("h2", {}, "Runs"),
          this.#timeline.node,
          this.#details,
        ),
        conversation,
      ),
    );
    this.#draw();
    this.#composer?.ready(isNew);
    this.#showRequest(this.#view.query.get("action"));
    const path = this.#view.query.get("file");
    if (path !== null) this.#files.viewPath(path);
    // The run may have started while session and log were loaded.
    if (this.#session.title === null && this.#conversation.runs.all.length > 0) this.#loadTitle();
    this.#stream();
  }

  /** Scrolls to a request and moves the focus to it. */
  #showRequest(id) {
    const index = id === null ? -1 : this.#conversation.indexOfRequest(id);
    if (index >= 0) this.#transcript.showBlock(index);
  }

  /** Dropped files become attachments of the message that is being written. */
  #attach(blobs) {
    if (this.#canAttach) pendingFiles(this.#session.id).add(blobs);
    else notice("Files cannot be attached here.");
  }

  /** A session token cannot upload files. */
  get #canAttach() {
    return can("session.manage") && this.#session.archived_at === null;
  }

  // --- listener of the outbox ---

  accepted(entry, { outcome, run_id: runId }) {
    this.#conversation.accepted(entry, outcome, runId);
    this.#scheduleDraw();
  }

  refused(entries, error) {
    for (const entry of entries) this.#conversation.refused(entry);
    this.#scheduleDraw();
    this.#composer?.restore(error);
  }

  // --- rendering ---

  /** Draws the parts that depend on the session itself: header, details and composer. */
  #drawSession() {
    const session = this.#session;
    const { signal } = this.#view;
    const isArchived = session.archived_at !== null;
    const details = sessionDetails(session, signal);
    fill(this.#details, details.node);
    this.#setUsage = details.setUsage;
    this.#transcript.node.classList.toggle("archived", isArchived);
    this.#drawHeader();
    const send = (text, delivery, attachments, isBatch) => this.#send(text, delivery, attachments, isBatch);
    const files = this.#canAttach ? this.#files : null;
    this.#composer = canWrite() ? composer({ sessionId: session.id, signal, send, files, isArchived, more: this.#filesPanel.button }) : null;
    const readOnly = `Read-only: ${reasonAgainst("session.manage")}`;
    const content = this.#composer?.node ?? el("div", { class: "card buttons" }, el("span", { class: "muted" }, readOnly), this.#filesPanel.button);
    fill(this.#footer, this.#jump, this.#connection.node, content);
  }

  #drawHeader() {
    const session = this.#session;
    const { signal } = this.#view;
    const onChange = (changed) => {
      this.#session = changed;
      this.#filesPanel.setSession(changed);
      this.#drawSession();
      this.#draw();
      this.#header.querySelector("h1").focus();
    };
    const edit = async () => {
      const changed = await editSession(this.#session, signal);
      if (changed !== null) onChange(changed);
    };
    const onError = (error) => this.#footer.prepend(errorBox(error));
    const actions = [
      can("session.manage") && [
        el("button", { type: "button", on: { click: edit } }, "Edit session"),
        el("button", { type: "button", on: { click: () => shareDialog(session.id, signal) } }, "Share"),
      ],
      sessionMenu(session, onChange, onError),
    ];
    const tag = session.archived_at !== null && el("span", { class: "tag" }, "Archived");
    const crumbs = tokenSessionId() === null && el("p", { class: "crumbs" }, el("a", { href: "#/sessions" }, "All sessions"));
    fill(this.#header, crumbs, this.#view.title(sessionTitle(session), tag, el("div", { class: "buttons" }, actions)));
  }

  #send(text, delivery, attachments, isBatch) {
    this.#conversation.send(this.#outbox.put(text, delivery, attachments, isBatch));
    this.#transcript.jumpToEnd();
    this.#scheduleDraw();
  }

  async #stream() {
    const { signal } = this.#view;
    const path = `/sessions/${this.#session.id}/events`;
    const onConnection = (isConnected) => {
      if (isConnected) this.#conversation.resumed();
      this.#connection.update(isConnected);
      this.#scheduleDraw();
    };
    try {
      for await (const { type, data } of streamEvents(path, this.#conversation.position, signal, onConnection)) {
        if (DELTAS.includes(type)) this.#conversation.delta(data);
        else if (type === "model.retry") this.#conversation.modelRetried(data);
        else this.#conversation.event(data);
        // A hidden tab draws nothing else.
        setTabActivity(this.#conversation.activity);
        if (USAGE_EVENTS.includes(type)) this.#loadUsage(data.run_id);
        if (type === "run.started" && this.#session.title === null) this.#loadTitle();
        if (REQUEST_EVENTS.includes(type)) refreshOpenActions();
        if (type === "tool.result" || data.data?.attachments) this.#filesPanel.changed();
        this.#scheduleDraw();
      }
    } catch (error) {
      // Keep the composer: the user may want to copy the draft.
      if (!signal.aborted) this.#footer.prepend(errorBox(error));
    }
  }

  /** What a run and the session have used. Without it the page is complete, too. */
  async #loadUsage(runId) {
    const { signal } = this.#view;
    try {
      const [run, { usage }] = await Promise.all([get(`/runs/${runId}`, {}, signal), get(`/sessions/${this.#session.id}`, {}, signal)]);
      this.#conversation.setRun(run);
      this.#session = { ...this.#session, usage };
      this.#setUsage(usage);
      this.#scheduleDraw();
    } catch {
      // The next run, or the next visit, loads them.
    }
  }

  /** An untitled session gets a title when its first run starts. */
  async #loadTitle() {
    const { signal } = this.#view;
    try {
      const { title } = await get(`/sessions/${this.#session.id}`, {}, signal);
      if (signal.aborted || title === this.#session.title) return;
      this.#session = { ...this.#session, title };
      // Only the heading: a dialog that is open gives the focus back to its button.
      const { firstElementChild: heading } = this.#view.title(sessionTitle(this.#session));
      this.#header.querySelector("h1").replaceChildren(...heading.childNodes);
    } catch {
      // The next visit shows it.
    }
  }

  /** Draws at most once per frame, however many events arrive. */
  #scheduleDraw() {
    if (this.#isDrawScheduled) return;
    this.#isDrawScheduled = true;
    requestAnimationFrame(() => {
      this.#isDrawScheduled = false;
      if (!this.#view.signal.aborted) this.#draw();
    });
  }

  #draw() {
    const conversation = this.#conversation;
    this.#empty.hidden = conversation.blocks.length + conversation.pending.length > 0;
    this.#composer?.update(conversation);
    setTabActivity(conversation.activity);
    this.#timeline.draw();
    this.#transcript.draw();
    this.#updateJump();
    const texts = conversation.takeAnnouncements();
    if (texts.length > 0) this.#announcer.textContent = texts.map((text) => text.slice(0, ANNOUNCED_CHARACTERS)).join(" ");
  }

  #updateJump() {
    this.#jump.hidden = this.#transcript.isAtEnd;
  }

  #jumpToEnd() {
    this.#transcript.jumpToEnd();
    this.#updateJump();
    this.#footer.querySelector("textarea")?.focus({ preventScroll: true });
  }
}
