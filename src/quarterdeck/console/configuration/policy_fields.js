// The tool policy: a row for each tool or prefix.

import { listAll } from "../api.js";
import { el, uniqueId } from "../dom.js";

const RULES = [["allow", "Allow"], ["ask", "Ask"], ["deny", "Deny"]];
const TOOLS = ["bash", "read_file", "write_file", "edit_file", "list_files", "search_files", "read_skill_file", "add_note", "current_time"];
const PATTERN = "([A-Za-z0-9_\\-]{1,128}\\*?|\\*)";

/** Suggests the tools of the server, those of the caller (`clientTools`: names), and a prefix for each MCP server. */
export function policyFields(policy, clientTools, signal) {
  const names = el("datalist", { id: uniqueId("tools") }, [...TOOLS, ...clientTools].map((value) => el("option", { value })));
  suggestServers(names, signal);
  const rows = el("div", { class: "policy-rows" }, Object.entries(policy).map(([name, rule]) => policyRow(name, rule, names.id)));
  const add = el("button", { type: "button", class: "small", on: { click: addRow } }, "Add rule");

  function addRow() {
    const row = policyRow("", "ask", names.id);
    rows.append(row);
    row.querySelector("input").focus();
  }

  return el(
    "fieldset",
    { class: "policy" },
    el("legend", {}, "Tool policy"),
    rows,
    names,
    add,
    el("p", { class: "hint" }, "A tool name, or a prefix such as crm_*. Without a rule, tools that only read, tools of the caller and, unless the server is set otherwise, the tools of the sandbox are allowed; all others ask, also those of MCP servers."),
  );
}

async function suggestServers(list, signal) {
  try {
    for await (const { name } of listAll("/mcp-servers", {}, signal)) list.append(el("option", { value: `${name}__*` }));
  } catch {
    // The field still works without suggestions.
  }
}

/** The policy in the form. Rows without a name are left out. */
export function policyValue(data) {
  const rules = data.getAll("policy rule");
  const names = data.getAll("policy tool").map((name) => name.trim());
  if (new Set(names.filter(Boolean)).size < names.filter(Boolean).length) throw new Error("Two rules of the tool policy have the same name.");
  return Object.fromEntries(names.map((name, index) => [name, rules[index]]).filter(([name]) => name !== ""));
}

function policyRow(name, rule, listId) {
  const tool = el("input", {
    name: "policy tool", value: name, list: listId, pattern: PATTERN, maxlength: 129, autocomplete: "off", spellcheck: "false", placeholder: "Tool or prefix*",
    "aria-label": "Tool or prefix", title: "Letters, digits, _ and -; a prefix ends with *",
  });
  const choice = el("select", { name: "policy rule", "aria-label": "Rule" }, RULES.map(([value, label]) => el("option", { value, selected: value === rule }, label)));
  const remove = () => {
    const next = row.nextElementSibling ?? row.previousElementSibling;
    const target = /** @type {HTMLElement | null} */ (next?.querySelector("button") ?? row.closest("fieldset").querySelector(":scope > button"));
    row.remove();
    target?.focus();
  };
  const row = el("div", { class: "policy-row" }, tool, choice, el("button", { type: "button", class: "small", "aria-label": "Remove rule", title: "Remove rule", on: { click: remove } }, "×"));
  return row;
}
