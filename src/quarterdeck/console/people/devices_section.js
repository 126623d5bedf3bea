// The devices of a person: browsers and command lines that are signed in.

import { listAll, post, remove } from "../api.js";
import { profile } from "../credential.js";
import { formDialog } from "../dialogs.js";
import { el, fill } from "../dom.js";
import { errorBox, loading, notice } from "../notices.js";
import { table } from "../tables.js";
import { relativeTime } from "../time_format.js";
import { visibleName } from "../visible_text.js";

const KINDS = { browser: "Browser", command_line: "Command line" };

/** Returns `{node, draw()}`. */
export function devicesSection(signal) {
  const list = el("div", {}, loading("devices"));
  const columns = [
    { name: "Device", cell: (device) => el("div", {}, el("span", { class: "name" }, visibleName(device.name)), isOwn(device) && [" ", el("span", { class: "tag run" }, "This device")]) },
    { name: "Type", class: "short", cell: (device) => KINDS[device.kind] ?? device.kind },
    { name: "Signed in", class: "short", cell: (device) => el("div", {}, relativeTime(device.created_at), device.address !== null && el("div", { class: "muted small-text" }, `from ${device.address}`)) },
    { name: "Last used", class: "short", cell: (device) => (isOwn(device) ? "Now" : relativeTime(device.last_used_at)) },
    { name: "Actions", class: "actions", cell: (device) => (isOwn(device) ? null : endButton(device)) },
  ];

  async function draw() {
    try {
      const devices = await Array.fromAsync(listAll("/devices", {}, signal));
      // This one first.
      devices.sort((a, b) => Number(isOwn(b)) - Number(isOwn(a)));
      fill(list, table("Devices", columns, devices));
    } catch (error) {
      if (!signal.aborted) fill(list, errorBox(error, draw));
    }
  }

  function endButton(device) {
    return el("button", { class: "small", type: "button", "aria-label": `Sign out ${visibleName(device.name)}`, on: { click: () => end(device) } }, "Sign out");
  }

  async function end(device) {
    const done = await formDialog({
      title: `Sign out “${visibleName(device.name)}”?`,
      fields: el("p", {}, "It loses access at once. Somebody has to sign in there again."),
      confirm: "Sign out device",
      danger: true,
      act: () => remove(`/devices/${device.id}`),
    });
    if (done === null || signal.aborted) return;
    notice(`“${visibleName(device.name)}” was signed out.`);
    await draw();
    everywhere.focus();
  }

  async function endAll() {
    const done = await formDialog({
      title: "Sign out everywhere?",
      fields: el("p", {}, "All your browsers and command lines are signed out, also this one. Keys and session tokens keep working."),
      confirm: "Sign out everywhere",
      danger: true,
      act: () => post("/devices/end-all"),
    });
    if (done !== null) window.dispatchEvent(new Event("quarterdeck:sign-out"));
  }

  const everywhere = el("button", { type: "button", on: { click: endAll } }, "Sign out everywhere");
  const node = el("section", {}, el("div", { class: "section-head" }, el("h2", { class: "section" }, "Devices"), everywhere), list);
  draw();
  return { node, draw };
}

function isOwn(device) {
  return device.id === profile()?.device_id;
}
