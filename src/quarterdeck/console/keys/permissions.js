// What a key may be allowed to do, each in a sentence.

export const PERMISSIONS = [
  ["workspace.read", "See everything in the workspace: sessions, skills, keys, the audit log."],
  ["session.manage", "Create and change sessions, send inputs, cancel runs, make session tokens."],
  ["skill.manage", "Create skills, push versions, choose which version is used."],
  ["key.manage", "Create, rotate and revoke keys, none of them stronger than its own."],
];
