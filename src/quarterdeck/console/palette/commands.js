// What the command palette offers: pages, actions, sessions by title and skills by name.

import { get, listAll } from "../api.js";
import { can } from "../credential.js";
import { ACTIONS, HELP_LINKS, PAGES } from "../navigation.js";
import { navigate } from "../router.js";
import { visibleName } from "../visible_text.js";

const MAX_FOUND = 6;

/** Groups `{name, commands}` whose commands contain all words of the text. A command has `name`, `icon` and `run()`. */
export function staticGroups(text) {
  const goTo = (path) => () => navigate(path);
  const openTab = (url) => () => window.open(url, "_blank", "noopener");
  const actions = ACTIONS.filter(({ permission }) => can(permission)).map(({ name, icon, path }) => ({ name, icon, run: goTo(path) }));
  const signOut = { name: "Sign out", icon: "signOut", run: () => window.dispatchEvent(new Event("quarterdeck:sign-out")) };
  return [
    { name: "Go to", commands: PAGES.map(({ name, icon, path }) => ({ name, icon, run: goTo(path) })) },
    { name: "Actions", commands: [...actions, signOut] },
    { name: "Help", commands: HELP_LINKS.map(({ name, icon, url }) => ({ name, icon, run: openTab(url) })) },
  ].map(({ name, commands }) => ({ name, commands: commands.filter((one) => matches(one.name, text)) }));
}

/** Returns `async (text, signal) => groups`. The skills are loaded once, because the API has no search for them. */
export function objectSearch() {
  let skills = null;
  return async (text, signal) => {
    if (!can("workspace.read")) return [];
    skills ??= await Array.fromAsync(listAll("/skills", {}, signal));
    const sessions = (await get("/sessions", { search: text, limit: MAX_FOUND }, signal)).items;
    const found = text === "" ? [] : skills.filter((skill) => matches(skill.name, text)).slice(0, MAX_FOUND);
    return [
      {
        name: text === "" ? "Recent sessions" : "Sessions",
        commands: sessions.map(({ id, title }) => ({ name: title?.trim() ? visibleName(title) : "Untitled session", icon: "sessions", run: () => navigate(`/sessions/${id}`) })),
      },
      { name: "Skills", commands: found.map(({ id, name }) => ({ name: visibleName(name), icon: "skills", run: () => navigate(`/skills/${id}`) })) },
    ];
  };
}

function matches(name, text) {
  const lower = name.toLowerCase();
  return text.toLowerCase().split(/\s+/).every((word) => lower.includes(word));
}
