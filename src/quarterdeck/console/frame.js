// What stands around every page: where one can go, and who one is.

import * as credential from "./credential.js";
import { fillPage } from "./dialogs.js";
import { el } from "./dom.js";
import { named } from "./visible.js";

const PLACES = [
  ["/sessions", "Sessions"],
  ["/skills", "Skills"],
  ["/keys", "Keys"],
  ["/activity", "Activity"],
  ["/audit", "Audit log"],
  ["/workspace", "Workspace"],
];

/** Draws it anew for this path. The empty place of the page. */
export function frame(path) {
  const main = el("main", { id: "main", tabindex: "-1", "aria-busy": "true" });
  const shown = credential.onlySession() === null ? PLACES : [];
  fillPage(
    el("a", { class: "skip", href: "#main", on: { click: skipTo(main) } }, "Skip to the content"),
    el(
      "div",
      { class: "frame" },
      el(
        "div",
        { class: "side" },
        el("a", { class: "brand", href: "#/sessions" }, el("span", { class: "brand-mark", "aria-hidden": "true" }), "Quarterdeck"),
        shown.length > 0 && el("nav", { "aria-label": "Console" }, el("ul", {}, shown.map(([to, name]) => place(to, name, path)))),
        signedInAs(),
      ),
      main,
    ),
    document.querySelector(".notices") ?? el("div", { class: "notices", role: "status", "aria-live": "polite" }),
  );
  return main;
}

function place(to, name, path) {
  const here = path === to || path.startsWith(`${to}/`) || (path === "/" && to === "/sessions");
  return el("li", {}, el("a", { href: `#${to}`, "aria-current": here ? "page" : null }, name));
}

function signedInAs() {
  const caller = credential.whoami();
  const leave = () => window.dispatchEvent(new Event("quarterdeck:sign-out"));
  return el(
    "div",
    { class: "who" },
    el("div", { class: "who-name" }, named(caller.workspace_name)),
    el("div", { class: "quiet" }, named(caller.label ?? "Session token"), " · ", el("code", {}, `${caller.prefix}…`)),
    el("button", { class: "plain", type: "button", on: { click: leave } }, "Sign out"),
  );
}

/** The address names the page, so a link to a place in it must not change it. */
function skipTo(main) {
  return (event) => {
    event.preventDefault();
    main.focus();
  };
}
