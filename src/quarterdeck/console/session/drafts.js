// What was typed and not sent, for each session. Kept in memory: it outlives a page that is left and a credential that
// is refused, not the tab and not signing out.

const drafts = new Map();

export function draft(sessionId) {
  return drafts.get(sessionId) ?? "";
}

export function keepDraft(sessionId, text) {
  if (text === "") drafts.delete(sessionId);
  else drafts.set(sessionId, text);
}

window.addEventListener("quarterdeck:sign-out", () => drafts.clear());
