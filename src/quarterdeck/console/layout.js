// The parts around every page: navigation, account and the area for notices.

import { profile, tokenSessionId, whoami } from "./credential.js";
import { replacePage } from "./dialogs.js";
import { el } from "./dom.js";
import { icon } from "./icons.js";
import { inboxBadge } from "./inbox/open_actions.js";
import { HELP_LINKS, PAGES } from "./navigation.js";
import { openPalette, SHORTCUT } from "./palette/palette.js";
import { accountMenu } from "./people/account_menu.js";
import { visibleName } from "./visible_text.js";

/** Draws the layout for a path and returns its empty `main` element. */
export function drawLayout(path) {
  const main = el("main", { id: "main", tabindex: "-1", "aria-busy": "true" });
  // A plain link would change the hash, which holds the address of the page.
  const skip = (event) => { event.preventDefault(); main.focus(); };
  const isKey = tokenSessionId() === null;
  replacePage(
    el("a", { class: "skip", href: "#main", on: { click: skip } }, "Skip to content"),
    el(
      "div",
      { class: "layout" },
      el(
        "header",
        { class: "sidebar" },
        el("a", { class: "brand", href: "#/sessions" }, el("span", { class: "brand-mark", "aria-hidden": "true" }), "Quarterdeck"),
        isKey && searchButton(),
        isKey && el("nav", { "aria-label": "Main" }, el("ul", {}, PAGES.map((page) => navigationLink(page, path)))),
        el("ul", { class: "help-links" }, HELP_LINKS.map(helpLink)),
        el("div", { class: "account" }, profile() === null ? keyAccount() : accountMenu()),
      ),
      main,
    ),
    document.querySelector(".notices") ?? el("div", { class: "notices", role: "status", "aria-live": "polite" }),
  );
  // On phones the navigation scrolls sideways.
  document.querySelector(".sidebar nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  return main;
}

function searchButton() {
  return el(
    "button",
    { class: "search-button", type: "button", "aria-haspopup": "dialog", "aria-keyshortcuts": "Control+K Meta+K", on: { click: openPalette } },
    icon("search"),
    el("span", {}, "Search"),
    el("kbd", { "aria-hidden": "true" }, SHORTCUT),
  );
}

function navigationLink({ path: target, name, icon: iconName }, path) {
  const isCurrent = path === target || path.startsWith(`${target}/`) || (path === "/" && target === "/sessions");
  return el("li", {}, el("a", { href: `#${target}`, "aria-current": isCurrent ? "page" : null }, icon(iconName), name, target === "/inbox" && inboxBadge()));
}

function helpLink({ url, name, icon: iconName }) {
  return el("li", {}, el("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, icon(iconName), name));
}

function keyAccount() {
  const { workspace_name: workspace, label, prefix } = whoami();
  const signOut = () => window.dispatchEvent(new Event("quarterdeck:sign-out"));
  return [
    el("div", { class: "account-name" }, visibleName(workspace)),
    el("div", { class: "muted" }, visibleName(label ?? "Session token")),
    el("code", {}, `${prefix}…`),
    el("button", { class: "plain", type: "button", on: { click: signOut } }, "Sign out"),
  ];
}
