// Whether the page still hears of news. Only a loss is worth a word, and its end.

import { el } from "../dom.js";

const SAID_MS = 5000;

export function connection() {
  const node = el("p", { class: "connection", role: "status" });
  let isLost = false;
  let timer = null;

  function say(text, tone) {
    clearTimeout(timer);
    node.className = `connection ${tone}`;
    node.textContent = text;
  }

  return {
    node,
    told(isConnected) {
      if (isConnected && isLost) {
        say("Connected again.", "good");
        timer = setTimeout(() => node.replaceChildren(), SAID_MS);
      } else if (!isConnected && !isLost) {
        say("Connection lost. Trying again…", "warn");
      }
      isLost = !isConnected;
    },
  };
}
