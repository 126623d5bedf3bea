// Email addresses of people without a name. The log of a session has none, because session tokens can read it.

import { listAll } from "../api.js";
import { can, whoami } from "../credential.js";

let workspaceId = null;
/** A map from ids to addresses, for the workspace. */
let loading = null;

/** Null if the person has none or it is not known. */
export async function emailOf(userId) {
  if (!can("workspace.read")) return null;
  if (workspaceId !== whoami().workspace_id) [workspaceId, loading] = [whoami().workspace_id, null];
  loading ??= load();
  return (await loading).get(userId) ?? null;
}

async function load() {
  const emails = new Map();
  try {
    for await (const { user } of listAll("/members")) emails.set(user.user_id, user.primary_email);
  } catch {
    loading = null;
  }
  return emails;
}
