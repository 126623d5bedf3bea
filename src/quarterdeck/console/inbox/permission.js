// Whether the user is allowed to answer requests.

import { get } from "../api.js";
import { can, tokenSessionId } from "../credential.js";

let tokenMayAnswer = false;

export function canAnswer() {
  return tokenSessionId() === null ? can("action.resolve") : tokenMayAnswer;
}

/** A session token without this right finds no requests, so the server is asked once for each page. */
export async function loadPermission(signal) {
  if (tokenSessionId() === null) return;
  tokenMayAnswer = await get("/actions", { session_id: tokenSessionId(), limit: 1 }, signal).then(() => true, () => false);
}

/** Why the user is not allowed to raise the limit, or null. */
export function reasonNotToRaise({ scope }) {
  if (tokenSessionId() !== null) return "A session token cannot raise limits.";
  return scope === "day" && !can("key.manage") ? "Raising the daily limit requires the permission key.manage." : null;
}
