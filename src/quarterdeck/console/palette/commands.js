// What the command palette offers: pages, actions, sessions by title, and agents, skills and MCP servers by name.

import { get, listAll } from "../api.js";
import { can, profile } from "../credential.js";
import { ACTIONS, HELP_LINKS, PAGES, PERSON_PAGES } from "../navigation.js";
import { navigate } from "../router.js";
import { visibleName } from "../visible_text.js";

const MAX_FOUND = 6;

/** Groups `{name, commands}` whose commands contain all words of the text. A command has `name`, `icon` and `run()`. */
export function staticGroups(text) {
  const goTo = (path) => () => navigate(path);
  const openTab = (url) => () => window.open(url, "_blank", "noopener");
  const actions = ACTIONS.filter(({ permission }) => can(permission)).map(({ name, icon, path }) => ({ name, icon, run: goTo(path) }));
  const signOut = { name: "Sign out", icon: "signOut", run: () => window.dispatchEvent(new Event("quarterdeck:sign-out")) };
  const groups = [
    { name: "Go to", commands: [...PAGES, ...(profile() === null ? [] : PERSON_PAGES)].map(({ name, icon, path }) => ({ name, icon, run: goTo(path) })) },
    { name: "Actions", commands: [...actions, signOut] },
    { name: "Help", commands: HELP_LINKS.map(({ name, icon, url }) => ({ name, icon, run: openTab(url) })) },
  ];
  return matchingGroups(groups, text);
}

export function matchingGroups(groups, text) {
  return groups.map(({ name, commands }) => ({ name, commands: commands.filter((one) => matches(one.name, text)) }));
}

/** Objects that the API cannot search: all of them are loaded once. */
const LISTS = [
  { name: "Agents", path: "/agents", icon: "agents" },
  { name: "Skills", path: "/skills", icon: "skills" },
  { name: "MCP servers", path: "/mcp-servers", icon: "servers" },
];

/** Returns `async (text, signal) => groups`. */
export function objectSearch() {
  let lists = null;
  return async (text, signal) => {
    if (!can("workspace.read")) return [];
    lists ??= await Promise.all(LISTS.map(async (list) => ({ ...list, items: await Array.fromAsync(listAll(list.path, {}, signal)) })));
    const sessions = (await get("/sessions", { search: text, limit: MAX_FOUND }, signal)).items;
    const found = (items) => (text === "" ? [] : items.filter((one) => matches(one.name, text)).slice(0, MAX_FOUND));
    return [
      {
        name: text === "" ? "Recent sessions" : "Sessions",
        commands: sessions.map(({ id, title }) => ({ name: title?.trim() ? visibleName(title) : "Untitled session", icon: "sessions", run: () => navigate(`/sessions/${id}`) })),
      },
      ...lists.map(({ name, path, icon, items }) => ({
        name,
        commands: found(items).map((one) => ({ name: visibleName(one.name), icon, run: () => navigate(`${path}/${one.id}`) })),
      })),
    ];
  };
}

function matches(name, text) {
  const lower = name.toLowerCase();
  return text.toLowerCase().split(/\s+/).every((word) => lower.includes(word));
}
