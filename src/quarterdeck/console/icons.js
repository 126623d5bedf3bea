// The icons of the console: paths in a 16 × 16 box, drawn as lines in the colour of the text.

import { svg } from "./dom.js";

const PATHS = {
  activity: "M1.5 8h3l2-5 3 10 2-5h3",
  agents: "M3 6.5h10v7H3zM8 6.5V3.5M6.5 3.5h3M6 9.5v1M10 9.5v1M1.5 9v2M14.5 9v2",
  api: "M5.5 4 2 8l3.5 4M10.5 4 14 8l-3.5 4",
  attach: "m13.5 7.5-5.3 5.3a3.2 3.2 0 0 1-4.5-4.5l5.6-5.6a2.1 2.1 0 0 1 3 3L6.7 11.3a1 1 0 0 1-1.5-1.5l5-5",
  audit: "M5.5 4h8M5.5 8h8M5.5 12h8M2.5 4h.01M2.5 8h.01M2.5 12h.01",
  close: "M4 4l8 8M12 4l-8 8",
  credentials: "M3.5 7h9v6.5h-9zM5.5 7V5a2.5 2.5 0 0 1 5 0v2M8 9.5V11",
  docs: "M3 11.5v-7a2 2 0 0 1 2-2h8v11H5a2 2 0 0 1 0-4h8",
  download: "M8 2.5v8M4.5 7 8 10.5 11.5 7M2.5 10.5v3h11v-3",
  file: "M4 1.5h5L12.5 5v9.5H4zM9 1.5V5h3.5",
  files: "M1.5 13V3h4.5l1.5 2h7v8z",
  inbox: "M2 9.5 4 3h8l2 6.5v4H2zM2 9.5h3.5l1 2h3l1-2H14",
  keys: "M8.5 10.5a3 3 0 1 1-6 0 3 3 0 0 1 6 0zM7.7 8.3l5.8-5.8M11 5l2 2",
  members: "M8.5 5.5a2.5 2.5 0 1 1-5 0 2.5 2.5 0 0 1 5 0zM1.5 13.5c0-2.6 1.8-4.2 4.5-4.2s4.5 1.6 4.5 4.2M10.5 3.2a2.5 2.5 0 0 1 0 4.6M12 9.6c1.6.5 2.5 1.9 2.5 3.9",
  plus: "M8 3v10M3 8h10",
  profile: "M10.7 5.5a2.7 2.7 0 1 1-5.4 0 2.7 2.7 0 0 1 5.4 0zM2.8 13.5c0-2.6 2-4.2 5.2-4.2s5.2 1.6 5.2 4.2",
  search: "M11.5 7a4.5 4.5 0 1 1-9 0 4.5 4.5 0 0 1 9 0zM10.3 10.3 14 14",
  servers: "M2.5 2.5h11v4.5h-11zM2.5 9h11v4.5h-11zM5 4.75h.01M5 11.25h.01",
  sessions: "M2.5 3h11v8H8l-3 2.5V11H2.5z",
  signOut: "M6 2.5H3v11h3M10.5 5l3 3-3 3M13 8H6.5",
  skills: "m8 2 6 3-6 3-6-3zM2 8l6 3 6-3M2 11l6 3 6-3",
  upload: "M8 10.5v-8M4.5 6 8 2.5 11.5 6M2.5 10.5v3h11v-3",
  webhooks: "M9 1.5 3.5 9H8l-1 5.5L12.5 7H8z",
  workspace: "M2.5 13.5V3h6v10.5M8.5 6.5h5v7M1 13.5h14M5 5.5h1M5 8h1M5 10.5h1",
};

/** Hidden from screen readers: every icon has a label next to it or is in a labelled button. */
export function icon(name) {
  return svg("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: PATHS[name] }));
}
