// The title and the icon of the browser tab.

const SIGNS = { working: "▶ ", waiting: "⏸ " };

let title = "";
/** What the run of the shown session does: `working`, `waiting` (for a person) or null. */
let activity = null;

export function setTabTitle(text) {
  title = `${text} · Quarterdeck`;
  draw();
}

export function setTabActivity(value) {
  if (value === activity) return;
  activity = value;
  draw();
}

function draw() {
  document.title = `${SIGNS[activity] ?? ""}${title}`;
  const link = /** @type {HTMLLinkElement} */ (document.querySelector("link[rel=icon]"));
  link.href = new URL(activity === null ? "icon.svg" : `icon_${activity}.svg`, import.meta.url).href;
}
