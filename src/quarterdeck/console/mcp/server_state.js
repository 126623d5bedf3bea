// The result of the last check of an MCP server.

import { el } from "../dom.js";

export function serverState({ checked_at: checkedAt, check_failure: failure }) {
  if (checkedAt === null) return el("span", { class: "tag" }, "Not checked");
  return failure === null ? el("span", { class: "tag good" }, "OK") : el("span", { class: "tag bad" }, "Failed");
}
