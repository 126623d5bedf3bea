// The fields of an agent's configuration as form fields. Versions of agents and sessions have the same ones.

import { field } from "../dialogs.js";
import { el } from "../dom.js";
import { serversField, serversValue, skillsField, skillsValue } from "./choices.js";
import { jsonTextField, jsonTextValue } from "./json_text.js";
import { limitFields, limitValues } from "./limit_fields.js";
import { fallbacksField, fallbacksValue, modelField, settingsFields, settingsValue } from "./model_fields.js";
import { policyFields, policyValue } from "./policy_fields.js";
import { sandboxField, sandboxValue } from "./sandbox_field.js";

const NO_LIMIT = { max_cost_usd: null, max_tokens: null };

/** What a field has if nothing is set. */
export const EMPTY = {
  model: null,
  fallback_models: [],
  settings: {},
  instructions: null,
  skills: [],
  mcp_servers: [],
  // The default of the server.
  sandbox: undefined,
  tool_policy: {},
  client_tools: [],
  limits: { run: NO_LIMIT, session: NO_LIMIT },
  output_schema: null,
};

/** Names of the fields in the order of the form. The second group is folded in dialogs. */
export const MAIN_FIELDS = ["model", "settings", "instructions", "sandbox", "skills", "mcp_servers"];
export const MORE_FIELDS = ["fallback_models", "tool_policy", "client_tools", "limits", "output_schema"];

/** The name of a field for people. */
export const LABELS = {
  model: "Model",
  fallback_models: "Fallbacks",
  settings: "Model settings",
  instructions: "Instructions",
  skills: "Skills",
  mcp_servers: "MCP servers",
  sandbox: "Sandbox",
  tool_policy: "Tool policy",
  client_tools: "Client tools",
  limits: "Limits",
  output_schema: "Output schema",
};

/**
 * `build(value, options)` returns the controls, `read(data)` the value in the form, undefined if it is not loaded or not set.
 * `options`: `{signal, instructionRows, toolNames}`.
 */
export const FIELDS = {
  model: { build: (model, { signal }) => modelField(model, signal), read: (data) => data.get("model").trim() || null },
  fallback_models: { build: fallbacksField, read: fallbacksValue },
  settings: { build: (settings) => settingsFields(settings), read: settingsValue },
  instructions: { build: instructionsField, read: (data) => data.get("instructions").trim() || null },
  skills: { build: (skills, { signal }) => skillsField(skills, signal), read: skillsValue },
  mcp_servers: { build: (ids, { signal }) => serversField(ids, signal), read: serversValue },
  sandbox: { build: sandboxField, read: sandboxValue },
  tool_policy: { build: (policy, { toolNames, signal }) => policyFields(policy, toolNames, signal), read: policyValue },
  client_tools: { build: clientToolsField, read: (data) => jsonTextValue(data, "client_tools", []) },
  limits: { build: bothLimits, read: (data) => ({ run: limitValues(data, "run"), session: limitValues(data, "session") }) },
  output_schema: { build: schemaField, read: (data) => jsonTextValue(data, "output_schema", null) },
};

function instructionsField(text, { instructionRows }) {
  return field("Instructions", el("textarea", { name: "instructions", rows: instructionRows, value: text ?? "" }), "Instructions that the agent always follows.");
}

function clientToolsField(tools) {
  return jsonTextField("Client tools", "client_tools", tools.length === 0 ? null : tools, "array", [
    "JSON: a list of tools that your program carries out, each with ", el("code", {}, "name"), ", ", el("code", {}, "description"), " and ", el("code", {}, "parameters"), ".",
  ]);
}

function bothLimits({ run = NO_LIMIT, session = NO_LIMIT }) {
  return [
    limitFields("run", "Limit for each run", run),
    limitFields("session", "Limit for the session", session, "A run that reaches a limit waits until you raise it or stop the run."),
  ];
}

function schemaField(schema) {
  return jsonTextField("Output schema", "output_schema", schema, "object", "JSON Schema of the final message. Leave empty for text.");
}

/** Whether a field has another value than that of an empty configuration. */
export function isSet(name, value) {
  return name === "limits" ? /\d/.test(JSON.stringify(value)) : JSON.stringify(value) !== JSON.stringify(EMPTY[name]);
}
