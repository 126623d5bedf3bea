// Unsent text of each session. Kept in memory: survives navigation and an expired credential, but not signing out.

const drafts = new Map();

export function draft(sessionId) {
  return drafts.get(sessionId) ?? "";
}

export function setDraft(sessionId, text) {
  if (text === "") drafts.delete(sessionId);
  else drafts.set(sessionId, text);
}

window.addEventListener("quarterdeck:sign-out", () => drafts.clear());
