// Labels for the actions and object types of the audit log.

/** Action: [phrase after the user's name, label in the filter]. */
const ACTIONS = {
  create_api_key: ["created the API key", "Key created"],
  rotate_api_key: ["rotated the API key", "Key rotated"],
  revoke_api_key: ["revoked the API key", "Key revoked"],
  create_session: ["created a session", "Session created"],
  change_session: ["changed a session", "Session changed"],
  fork_session: ["forked a session", "Session forked"],
  discard_input: ["discarded an input", "Input discarded"],
  delete_session: ["deleted a session", "Session deleted"],
  create_session_token: ["created a session token", "Session token created"],
  revoke_session_token: ["revoked a session token", "Session token revoked"],
  cancel_run: ["cancelled a run", "Run cancelled"],
  create_skill: ["created the skill", "Skill created"],
  change_skill: ["changed a skill", "Skill changed"],
  push_skill_version: ["pushed a skill version", "Skill version pushed"],
  create_webhook: ["created a webhook", "Webhook created"],
  change_webhook: ["changed a webhook", "Webhook changed"],
  delete_webhook: ["deleted a webhook", "Webhook deleted"],
  rotate_webhook_secret: ["rotated a webhook secret", "Webhook secret rotated"],
  test_webhook: ["tested a webhook", "Webhook tested"],
  redeliver_webhook: ["redelivered a webhook", "Webhook redelivered"],
  create_workspace: ["created the workspace", "Workspace created"],
  change_workspace: ["changed the workspace", "Workspace changed"],
  add_member: ["added the member", "Member added"],
  remove_member: ["removed the member", "Member removed"],
  set_user: ["renamed the member", "Member renamed"],
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

/** `[value, label]` for the filters. */
export const ACTION_CHOICES = Object.entries(ACTIONS).map(([action, [, label]]) => [action, label]);
export const TYPE_CHOICES = Object.entries(OBJECT_TYPES);

/** Unknown actions, from a newer server, are shown by their name. */
export function actionPhrase({ action, detail }) {
  if (action === "push_skill_version") return `pushed version ${detail.version} of a skill`;
  return ACTIONS[action]?.[0] ?? action.replaceAll("_", " ");
}

/** The name of the object, or null if the entry does not contain it. */
export function objectName({ detail }) {
  return detail.label ?? detail.name ?? detail.email ?? detail.display_name ?? detail.description ?? null;
}

/** The address of the object in the console, or null if it has no page. */
export function objectLink({ object_type: type, object_id: id, action, detail }) {
  if (action.startsWith("delete_")) return null;
  if (type === "session") return `#/sessions/${id}`;
  if (type === "run" || type === "session_token") return `#/sessions/${detail.session_id}`;
  if (type === "skill") return `#/skills/${id}`;
  if (type === "skill_version") return `#/skills/${detail.skill_id}/versions/${detail.version}`;
  if (type === "api_key") return "#/keys";
  return type === "webhook" ? null : "#/workspace";
}
