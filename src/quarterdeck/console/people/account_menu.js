// The menu of the person who has signed in: workspaces, profile, sign out.

import { profile, whoami } from "../credential.js";
import { el, uniqueId } from "../dom.js";
import { capitalize } from "../format.js";
import { icon } from "../icons.js";
import { userName } from "../users.js";
import { visibleName, visibleText } from "../visible_text.js";
import { avatar } from "./avatar.js";

export function accountMenu() {
  const { user, workspaces } = profile();
  const { workspace_id: current, workspace_name: workspaceName, role } = whoami();
  const menuId = uniqueId("menu");
  const signOut = () => window.dispatchEvent(new Event("quarterdeck:sign-out"));
  const choose = (id) => window.dispatchEvent(new CustomEvent("quarterdeck:choose-workspace", { detail: id }));
  const menu = el(
    "div",
    { class: "menu account-menu", id: menuId, popover: "auto", on: { beforetoggle: position } },
    el(
      "div",
      { class: "account-menu-head" },
      el("strong", {}, userName(user)),
      user.primary_email !== null && user.display_name !== null && el("div", { class: "muted" }, visibleText(user.primary_email)),
      el("div", { class: "muted" }, `${capitalize(role)} of ${visibleName(workspaceName)}`),
    ),
    workspaces.length > 1 && [
      el("h2", { class: "menu-heading" }, "Workspaces"),
      workspaces.map((one) => {
        const isCurrent = one.workspace_id === current;
        const label = [visibleName(one.workspace_name), el("span", { class: "muted" }, capitalize(one.role))];
        return el("button", { type: "button", "aria-current": isCurrent ? "true" : null, on: { click: () => (isCurrent ? menu.hidePopover() : choose(one.workspace_id)) } }, label);
      }),
    ],
    el("hr", {}),
    el("a", { href: "#/profile", on: { click: () => menu.hidePopover() } }, icon("profile"), "Profile"),
    el("button", { type: "button", on: { click: signOut } }, icon("signOut"), "Sign out"),
  );
  const button = el(
    "button",
    { class: "account-button", type: "button", popovertarget: menuId, "aria-haspopup": "true" },
    avatar(user),
    el("span", { class: "account-text" }, el("span", { class: "visually-hidden" }, "Account of "), el("span", { class: "account-name" }, userName(user)), el("span", { class: "muted" }, visibleName(workspaceName))),
  );

  /** Above the button if that is at the bottom of the window, else below it. */
  function position() {
    const { top, bottom, left, right } = button.getBoundingClientRect();
    const isLow = top > window.innerHeight / 2;
    Object.assign(menu.style, isLow
      ? { bottom: `${window.innerHeight - top + 4}px`, left: `${left}px` }
      : { top: `${bottom + 4}px`, right: `${Math.max(0, document.documentElement.clientWidth - right)}px` });
  }

  return [button, menu];
}
