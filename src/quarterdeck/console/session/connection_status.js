// Tells the user when the live connection is lost and when it is restored.

import { el } from "../dom.js";

const RESTORED_MS = 5000;

export function connectionStatus() {
  const node = el("p", { class: "connection", role: "status" });
  let isLost = false;
  let timer = null;

  function show(text, tone) {
    clearTimeout(timer);
    node.className = `connection ${tone}`;
    node.textContent = text;
  }

  return {
    node,
    update(isConnected) {
      if (isConnected && isLost) {
        show("Reconnected", "good");
        timer = setTimeout(() => node.replaceChildren(), RESTORED_MS);
      } else if (!isConnected && !isLost) {
        show("Connection lost. Reconnecting…", "warn");
      }
      isLost = !isConnected;
    },
  };
}
