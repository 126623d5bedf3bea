// The person who has signed in: name, password, workspaces and devices.

import { patch } from "../api.js";
import { profile, setPerson } from "../credential.js";
import { field, formDialog } from "../dialogs.js";
import { el, fill } from "../dom.js";
import { notice } from "../notices.js";
import { avatar } from "../people/avatar.js";
import { devicesSection } from "../people/devices_section.js";
import { changePassword } from "../people/password_dialog.js";
import { personRequired } from "../people/person_required.js";
import { providerButtons } from "../people/providers.js";
import { roleTag } from "../people/roles.js";
import { userName } from "../users.js";
import { visibleName, visibleText } from "../visible_text.js";

export async function show(view) {
  if (profile() === null) {
    fill(view.main, view.title("Profile"), personRequired("see your profile"));
    return;
  }
  const card = el("section", { class: "card profile" });
  const devices = devicesSection(view.signal);
  fill(view.main, view.title("Profile"), card, devices.node);
  draw();

  function draw() {
    const { user, has_password: hasPassword, workspaces } = profile();
    fill(
      card,
      el("div", { class: "person large" }, avatar(user), el("div", {}, el("h2", {}, userName(user)), el("div", { class: "muted" }, visibleText(user.primary_email ?? "No email address")))),
      el(
        "dl",
        { class: "facts" },
        el("dt", {}, workspaces.length === 1 ? "Workspace" : "Workspaces"),
        workspaces.map((one) => el("dd", {}, visibleName(one.workspace_name), " ", roleTag(one.role))),
        el("dt", {}, "Password"),
        el("dd", {}, hasPassword ? "Set" : "None"),
      ),
      el(
        "div",
        { class: "buttons" },
        el("button", { type: "button", class: "edit-name", on: { click: rename } }, "Change name"),
        el("button", { type: "button", class: "edit-password", on: { click: setPassword } }, hasPassword ? "Change password" : "Set a password"),
      ),
      providerButtons({ label: "Connect", path: "/profile/connect-provider", returnTo: "/profile" }),
    );
  }

  async function rename() {
    const input = el("input", { name: "display_name", maxlength: 200, autocomplete: "name", value: profile().user.display_name ?? "" });
    const changed = await formDialog({
      title: "Change name",
      fields: field("Name", input, "Shown in all your workspaces. Leave it empty to show your email address."),
      confirm: "Save name",
      act: (data) => patch("/profile", { display_name: data.get("display_name").trim() || null }),
    });
    if (changed === null) return;
    setPerson(changed);
    notice("Name saved.");
    // The layout shows the name, too.
    window.dispatchEvent(new Event("hashchange"));
  }

  async function setPassword() {
    const changed = await changePassword(profile());
    if (changed === null) return;
    setPerson(changed);
    notice("Password saved. Your other devices were signed out.");
    if (view.signal.aborted) return;
    draw();
    /** @type {HTMLElement} */ (card.querySelector(".edit-password")).focus();
    await devices.draw();
  }
}
