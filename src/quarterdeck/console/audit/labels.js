// Labels for the actions and object types of the audit log.

import { capitalize } from "../format.js";

/** Action: [phrase after the user's name, label in the filter]. The name of the object follows the phrase. */
const ACTIONS = {
  create_api_key: ["created the API key", "Key created"],
  rotate_api_key: ["rotated the API key", "Key rotated"],
  revoke_api_key: ["revoked the API key", "Key revoked"],
  create_session: ["created the session", "Session created"],
  change_session: ["changed the session", "Session changed"],
  delete_session: ["deleted the session", "Session deleted"],
  fork_session: ["forked the session", "Session forked"],
  create_session_token: ["created the session token", "Session token created"],
  revoke_session_token: ["revoked the session token", "Session token revoked"],
  cancel_run: ["cancelled a run", "Run cancelled"],
  retry_run: ["retried a run", "Run retried"],
  resolve_action: ["answered the request", "Request answered"],
  discard_input: ["discarded an input", "Input discarded"],
  create_skill: ["created the skill", "Skill created"],
  change_skill: ["changed the skill", "Skill changed"],
  delete_skill: ["deleted the skill", "Skill deleted"],
  push_skill_version: ["pushed a version of the skill", "Skill version pushed"],
  create_trusted_job: ["trusted the job", "Job trusted"],
  delete_trusted_job: ["trusted no longer the job", "Job trusted no longer"],
  exchange_job_token: ["got a key for the job", "Key of a job issued"],
  create_agent: ["created the agent", "Agent created"],
  change_agent: ["changed the agent", "Agent changed"],
  push_agent_version: ["created a version of the agent", "Agent version created"],
  create_mcp_server: ["added the MCP server", "MCP server added"],
  change_mcp_server: ["changed the MCP server", "MCP server changed"],
  check_mcp_server: ["checked the MCP server", "MCP server checked"],
  delete_mcp_server: ["deleted the MCP server", "MCP server deleted"],
  create_credential: ["created the credential", "Credential created"],
  rotate_credential: ["rotated the credential", "Credential rotated"],
  delete_credential: ["deleted the credential", "Credential deleted"],
  upload_file: ["uploaded the file", "File uploaded"],
  delete_file: ["deleted the file", "File deleted"],
  create_webhook: ["created the webhook", "Webhook created"],
  change_webhook: ["changed the webhook", "Webhook changed"],
  delete_webhook: ["deleted the webhook", "Webhook deleted"],
  rotate_webhook_secret: ["rotated the secret of the webhook", "Webhook secret rotated"],
  test_webhook: ["tested the webhook", "Webhook tested"],
  redeliver_webhook: ["redelivered an event of the webhook", "Webhook redelivered"],
  create_workspace: ["created the workspace", "Workspace created"],
  change_workspace: ["changed the workspace", "Workspace changed"],
  add_member: ["added the member", "Member added"],
  change_member: ["changed the role of", "Role changed"],
  remove_member: ["removed the member", "Member removed"],
  leave_workspace: ["left the workspace as", "Member left"],
  set_user: ["renamed the member", "Member renamed"],
  create_invitation: ["invited", "Invitation created"],
  withdraw_invitation: ["revoked the invitation of", "Invitation revoked"],
  accept_invitation: ["accepted the invitation as", "Invitation accepted"],
  join_workspace: ["joined the workspace as", "Member joined"],
  create_account_link: ["created a password link for", "Password link created"],
  sign_in: ["signed in on", "Signed in"],
  sign_out: ["signed out", "Signed out"],
  end_device: ["signed out the device", "Device signed out"],
  end_all_devices: ["signed out everywhere", "Signed out everywhere"],
  answer_device_code: ["answered the sign-in of", "Device sign-in answered"],
  change_profile: ["changed the profile of", "Profile changed"],
  change_password: ["changed the password of", "Password changed"],
  connect_provider: ["connected a provider for", "Provider connected"],
};

const OBJECT_TYPES = {
  action: "Requests",
  agent: "Agents",
  agent_version: "Agent versions",
  api_key: "API keys",
  credential: "Credentials",
  device: "Devices",
  file: "Files",
  invitation: "Invitations",
  mcp_server: "MCP servers",
  member: "Members",
  run: "Runs",
  session: "Sessions",
  session_token: "Session tokens",
  skill: "Skills",
  skill_version: "Skill versions",
  trusted_job: "Trusted jobs",
  webhook: "Webhooks",
  workspace: "Workspace",
};

/** The address of an object that has a page of its own, or is listed on one. */
const PAGES = {
  agent: (id) => `#/agents/${id}`,
  api_key: () => "#/keys",
  credential: () => "#/credentials",
  invitation: () => "#/members",
  member: () => "#/members",
  mcp_server: (id) => `#/mcp-servers/${id}`,
  session: (id) => `#/sessions/${id}`,
  skill: (id) => `#/skills/${id}`,
  trusted_job: () => "#/keys",
  webhook: (id) => `#/webhooks/${id}`,
};

/** `[value, label]` for the filters. */
export const ACTION_CHOICES = Object.entries(ACTIONS).map(([action, [, label]]) => [action, label]);
export const TYPE_CHOICES = Object.entries(OBJECT_TYPES);

/** `changed the session`, or `changed a session` if it has no name. Unknown actions, from a newer server, are shown by their name. */
export function actionPhrase(event) {
  const phrase = phraseBeforeName(event);
  return objectName(event) === null ? phrase.replace(" the ", " a ") : phrase;
}

function phraseBeforeName({ action, detail }) {
  if (action === "push_skill_version") return `pushed version ${detail.version} of the skill`;
  if (action === "push_agent_version") return `created version ${detail.version} of the agent`;
  return ACTIONS[action]?.[0] ?? action.replaceAll("_", " ");
}

/** `API key`, `Session token`. */
export function objectTypeName({ object_type: type }) {
  return capitalize(type.replaceAll("_", " ")).replace("Api", "API").replace("Mcp", "MCP");
}

/** The label of a detail: `latest_version` → `Latest version`. */
export function detailName({ action }, key) {
  if (action === "fork_session" && key === "session_id") return "Forked from";
  return capitalize(key.replaceAll("_", " ")).replace(/\bid(s?)$/i, "ID$1").replace(/^Url$/, "URL");
}

/** The name of the object, or null if it has none. */
export function objectName({ object_name: name, detail }) {
  return name ?? detail.label ?? detail.name ?? detail.email ?? detail.display_name ?? detail.description ?? null;
}

/** The address of the object in the console, or null if it has no page. */
export function objectLink({ object_type: type, object_id: id, action, detail }) {
  if (action.startsWith("delete_") || type === "file" || type === "device") return null;
  if (type === "run" || type === "session_token") return `#/sessions/${detail.session_id}`;
  if (type === "action") return detail.session_id ? `#/sessions/${detail.session_id}?action=${id}` : "#/inbox";
  if (type === "skill_version") return `#/skills/${detail.skill_id}/versions/${detail.version}`;
  if (type === "agent_version") return `#/agents/${detail.agent_id}/versions/${detail.version}`;
  return PAGES[type]?.(id) ?? "#/workspace";
}
