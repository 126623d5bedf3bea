// The tool policy of a session: a row for each tool or prefix.

import { el } from "../dom.js";

const RULES = [["allow", "Allow"], ["ask", "Ask"], ["deny", "Deny"]];
const PATTERN = "([A-Za-z0-9_\\-]{1,128}\\*?|\\*)";

export function policyFields(policy) {
  const rows = el("div", { class: "policy-rows" }, Object.entries(policy).map(([name, rule]) => policyRow(name, rule)));
  const add = el("button", { type: "button", class: "small", on: { click: addRow } }, "Add rule");

  function addRow() {
    const row = policyRow("", "ask");
    rows.append(row);
    row.querySelector("input").focus();
  }

  return el(
    "fieldset",
    { class: "policy" },
    el("legend", {}, "Tool policy"),
    rows,
    add,
    el("p", { class: "hint" }, "A tool name, or a prefix such as crm_*. Without a rule, tools that only read and tools of the caller are allowed, all others ask."),
  );
}

/** The policy in the form. Rows without a name are left out. */
export function policyValue(data) {
  const rules = data.getAll("policy rule");
  const names = data.getAll("policy tool").map((name) => name.trim());
  if (new Set(names.filter(Boolean)).size < names.filter(Boolean).length) throw new Error("Two rules of the tool policy have the same name.");
  return Object.fromEntries(names.map((name, index) => [name, rules[index]]).filter(([name]) => name !== ""));
}

function policyRow(name, rule) {
  const tool = el("input", {
    name: "policy tool", value: name, pattern: PATTERN, maxlength: 129, autocomplete: "off", spellcheck: "false", placeholder: "Tool or prefix*",
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
