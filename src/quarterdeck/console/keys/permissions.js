// The permissions that a key can have.

export const PERMISSIONS = [
  ["workspace.read", "Read everything in the workspace: sessions, skills, keys, audit log."],
  ["session.manage", "Create and edit sessions, send inputs, answer requests, cancel runs, create session tokens."],
  ["skill.manage", "Create skills, push versions, select the version that sessions use."],
  ["key.manage", "Manage webhooks. Create, rotate and revoke keys with at most its own permissions."],
];
