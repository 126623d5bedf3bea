// What the audit log calls things, and what people do.

/** Action, what somebody did, and what it is called in a list of choices. */
const ACTIONS = {
  create_api_key: ["created the API key", "Key created"],
  rotate_api_key: ["rotated the API key", "Key rotated"],
  revoke_api_key: ["revoked the API key", "Key revoked"],
  create_session: ["created a session", "Session created"],
  change_session: ["changed a session", "Session changed"],
  delete_session: ["deleted a session", "Session deleted"],
  create_session_token: ["made a session token", "Session token made"],
  revoke_session_token: ["revoked a session token", "Session token revoked"],
  cancel_run: ["cancelled a run", "Run cancelled"],
  create_skill: ["created the skill", "Skill created"],
  change_skill: ["changed a skill", "Skill changed"],
  push_skill_version: ["pushed a version of a skill", "Skill version pushed"],
  create_webhook: ["created a webhook", "Webhook created"],
  change_webhook: ["changed a webhook", "Webhook changed"],
  delete_webhook: ["deleted a webhook", "Webhook deleted"],
  rotate_webhook_secret: ["rotated the secret of a webhook", "Webhook secret rotated"],
  test_webhook: ["tested a webhook", "Webhook tested"],
  redeliver_webhook: ["delivered again to a webhook", "Webhook delivered again"],
  create_workspace: ["created the workspace", "Workspace created"],
  change_workspace: ["changed the workspace", "Workspace changed"],
  add_member: ["added the member", "Member added"],
  remove_member: ["removed the member", "Member removed"],
  set_user: ["named the member", "Member named"],
};

const OBJECT_TYPES = {
  api_key: "API keys",
  member: "Members",
  run: "Runs",
  session: "Sessions",
  session_token: "Session tokens",
  skill: "Skills",
  skill_version: "Skill versions",
  webhook: "Webhooks",
  workspace: "Workspace",
};

/** `[value, words]` for a list of choices. */
export const ACTION_CHOICES = Object.entries(ACTIONS).map(([action, [, words]]) => [action, words]);
export const TYPE_CHOICES = Object.entries(OBJECT_TYPES);

/** An action that a later server knows and this list does not is told by its name. */
export function done({ action, detail }) {
  if (action === "push_skill_version") return `pushed version ${detail.version} of a skill`;
  return ACTIONS[action]?.[0] ?? action.replaceAll("_", " ");
}

/** What the object of an entry is called, as far as the entry says; else null. */
export function objectName({ detail }) {
  return detail.label ?? detail.name ?? detail.email ?? detail.display_name ?? detail.description ?? null;
}

/** Where the console shows the object of an entry; null for what has no page. */
export function placeOf({ object_type: type, object_id: id, action, detail }) {
  if (action.startsWith("delete_")) return null;
  if (type === "session") return `#/sessions/${id}`;
  if (type === "run" || type === "session_token") return `#/sessions/${detail.session_id}`;
  if (type === "skill") return `#/skills/${id}`;
  if (type === "skill_version") return `#/skills/${detail.skill_id}/versions/${detail.version}`;
  if (type === "api_key") return "#/keys";
  return type === "webhook" ? null : "#/workspace";
}
