// A bundle on its way to the server: what will be sent, how far it is, and what the server said.

import { ApiError, freshKey, pause, pauseMs } from "../api.js";
import { el, fill } from "../dom.js";
import { faultBox } from "../notices.js";
import { upload } from "../transfer.js";
import { visible } from "../visible.js";
import { bytes, count } from "./words.js";

const TRIES = 5;
const LISTED = 200;

/** Shows the bundle and waits for the word, unless `atOnce`. `pushed(version)` or `dropped()` ends it. */
export function pushPanel({ skill, bundle, atOnce, signal, pushed, dropped }) {
  // One for the bundle, whatever happens: sent twice, it is one version.
  const key = freshKey();
  const below = el("div", {});
  const panel = el(
    "section",
    { class: "card push", "aria-label": "To be pushed", tabindex: "-1" },
    el("h2", {}, bundle.files ? "Folder " : "Archive ", el("bdi", {}, visible(bundle.from))),
    summary(bundle),
    below,
  );

  function ask(fault = null) {
    const push = el(
      "button",
      { type: "button", class: "primary", on: { click: send } },
      fault ? "Push it again" : "Push it",
    );
    const drop = el("button", { type: "button", on: { click: dropped } }, "Choose another");
    fill(below, fault, el("div", { class: "buttons" }, push, drop));
    push.focus();
  }

  async function send() {
    const stopping = new AbortController();
    const either = AbortSignal.any([signal, stopping.signal]);
    const shown = progressOf(() => stopping.abort());
    fill(below, shown.node);
    shown.stop.focus();
    try {
      const archive = await bundle.archive(either);
      shown.size(archive.size);
      pushed(await uploaded(`/skills/${skill.id}/versions`, archive, key, either, shown));
    } catch (fault) {
      if (signal.aborted) return;
      ask(stopping.signal.aborted ? stopped() : faultBox(fault));
    }
  }

  queueMicrotask(atOnce ? send : ask);
  return panel;
}

/** A connection that breaks, and a server that is away for a moment, are waited for. */
async function uploaded(path, archive, key, signal, shown) {
  for (let tried = 1; ; tried += 1) {
    try {
      return await upload(path, archive, { type: "application/gzip", key, signal, progress: shown.share });
    } catch (fault) {
      if (!(fault instanceof ApiError) || !fault.mayPass || tried === TRIES) throw fault;
      shown.say(`${fault.message} Trying again…`);
      await pause(fault.retryAfterMs ?? pauseMs(tried), signal);
    }
  }
}

function progressOf(stopIt) {
  const text = el("p", { role: "status" }, "Packing…");
  const bar = el("progress", { max: 1, "aria-label": "Sent" });
  const stop = el("button", { type: "button", on: { click: stopIt } }, "Stop");
  let total = "";
  const say = (words) => {
    // Each only once: a screen reader that read every step would never end.
    if (text.textContent !== words) text.textContent = words;
  };
  return {
    node: el("div", {}, text, bar, el("div", { class: "buttons" }, stop)),
    stop,
    say,
    size(packed) {
      total = bytes(packed);
      say(`Sending ${total}…`);
    },
    share(part) {
      bar.value = part;
      say(part < 1 ? `Sending ${total}…` : "Sent. The server reads it…");
    },
  };
}

function stopped() {
  return el(
    "p",
    { role: "status" },
    "Stopped. Had it arrived whole by then, it is among the versions; pushing it again makes no second one.",
  );
}

function summary(bundle) {
  if (bundle.files === null) return el("p", {}, `${bytes(bundle.bytes)}, sent as it is.`);
  const rest = bundle.files.length - LISTED;
  return [
    el(
      "p",
      {},
      `${count(bundle.files.length, "file")}, ${bytes(bundle.bytes)} before packing`,
      bundle.leftOut > 0 && `; ${bundle.leftOut.toLocaleString("en")} left out by ignore files`,
      ".",
    ),
    el(
      "details",
      {},
      el("summary", {}, "What will be sent"),
      el(
        "ul",
        { class: "names" },
        bundle.files
          .slice(0, LISTED)
          .map((one) =>
            el("li", {}, el("bdi", {}, visible(one.path)), " ", el("span", { class: "quiet" }, bytes(one.file.size))),
          ),
        rest > 0 && el("li", { class: "quiet" }, `and ${count(rest, "file")} more`),
      ),
    ),
  ];
}
