// The pages of the navigation and the links to the documentation.

export const PAGES = [
  { path: "/sessions", name: "Sessions", icon: "sessions" },
  { path: "/inbox", name: "Inbox", icon: "inbox" },
  { path: "/agents", name: "Agents", icon: "agents" },
  { path: "/skills", name: "Skills", icon: "skills" },
  { path: "/mcp-servers", name: "MCP servers", icon: "servers" },
  { path: "/activity", name: "Activity", icon: "activity" },
  { path: "/members", name: "Members", icon: "members" },
  { path: "/keys", name: "Keys", icon: "keys" },
  { path: "/credentials", name: "Credentials", icon: "credentials" },
  { path: "/webhooks", name: "Webhooks", icon: "webhooks" },
  { path: "/audit", name: "Audit log", icon: "audit" },
  { path: "/workspace", name: "Workspace", icon: "workspace" },
];

/** The API reference is served by this server, relative to the address of the console. */
export const HELP_LINKS = [
  { url: "https://github.com/quarterdeck/quarterdeck/tree/main/docs", name: "Documentation", icon: "docs" },
  { url: "docs", name: "API reference", icon: "api" },
];

/** Also in the command palette, for people who have signed in. */
export const PERSON_PAGES = [
  { path: "/profile", name: "Profile", icon: "profile" },
  { path: "/devices/approve", name: "Sign in a device", icon: "profile" },
];

/** Actions of the command palette. `?new` opens the form of the page. */
export const ACTIONS = [
  { path: "/sessions?new", name: "New session", icon: "plus", permission: "session.manage" },
  { path: "/agents/new", name: "New agent", icon: "plus", permission: "agent.manage" },
  { path: "/skills?new", name: "New skill", icon: "plus", permission: "skill.manage" },
  { path: "/mcp-servers?new", name: "Add MCP server", icon: "plus", permission: "agent.manage" },
  { path: "/credentials?new", name: "Create credential", icon: "plus", permission: "credential.manage" },
  { path: "/members?new", name: "Invite a person", icon: "plus", permission: "member.manage" },
  { path: "/keys?new", name: "Create key", icon: "plus", permission: "key.manage" },
  { path: "/webhooks?new", name: "Create webhook", icon: "plus", permission: "key.manage" },
];
