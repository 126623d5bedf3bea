// The permissions that a key can have.

export const PERMISSIONS = [
  ["workspace.read", "Read everything in the workspace: sessions, agents, skills, keys, audit log. No secrets."],
  ["session.manage", "Create and edit sessions, send inputs, cancel runs, create session tokens."],
  ["action.resolve", "Answer requests of runs, such as approvals."],
  ["skill.manage", "Create skills, push versions, select the version that sessions use."],
  ["agent.manage", "Create agents and their versions, select the version that sessions use, manage MCP servers."],
  ["credential.manage", "Create, rotate and delete credentials for MCP servers."],
  ["member.manage", "Invite and remove members, change their roles."],
  ["key.manage", "Manage webhooks. Create, rotate and revoke keys with at most its own permissions."],
];
