// The tools of an MCP server, as its last check found them.

import { el } from "../dom.js";
import { prettyJson } from "../inbox/labels.js";
import { longText } from "../session/long_text.js";
import { visibleLines, visibleName } from "../visible_text.js";

const CLAIM = "The server says that this tool only reads. Quarterdeck cannot verify it, so the tool asks unless the tool policy allows it.";

/** `tools`: `[{full_name, description, parameters, read_only}]`. Everything was written by the server. */
export function toolList(tools) {
  return el("ul", { class: "mcp-tools", "aria-label": "Tools" }, tools.map(tool));
}

function tool({ full_name: name, description, parameters, read_only: isReadOnly }) {
  const names = Object.keys(parameters?.properties ?? {});
  return el(
    "li",
    {},
    el(
      "details",
      { class: "mcp-tool" },
      el(
        "summary",
        {},
        el("code", {}, visibleName(name)),
        isReadOnly && el("span", { class: "tag", title: CLAIM }, "Claims to only read"),
        el("span", { class: "mcp-tool-brief muted" }, visibleLines(description).split("\n", 1)[0]),
      ),
      isReadOnly && el("p", { class: "hint" }, CLAIM),
      description.trim() !== "" && [el("h3", {}, "Description"), longText(description, pre)],
      el("h3", {}, names.length === 0 ? "Parameters: none" : "Parameters"),
      names.length > 0 && longText(prettyJson(parameters), pre),
    ),
  );
}

function pre(text) {
  return el("pre", { tabindex: "0" }, visibleLines(text));
}
