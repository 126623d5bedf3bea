// The form that answers a request, for each kind.

import { field } from "../dialogs.js";
import { el, fill } from "../dom.js";
import { jsonField } from "./json_field.js";
import { limitUse, raisedScope } from "./labels.js";
import { reasonNotToRaise } from "./permission.js";

const FORMS = { approval, tool_result: toolResult, unknown_outcome: unknownOutcome, budget };

/** `send(body)` sends the answer. The first button is the default action of the form. */
export function answerForm(action, send) {
  return FORMS[action.kind]?.(action, send) ?? null;
}

function approval(action, send) {
  const allow = el("button", { type: "submit", class: "primary" }, "Allow");
  const args = jsonField("Arguments", action.arguments ?? {}, () => { allow.textContent = args.isChanged ? "Allow with changes" : "Allow"; });
  const answer = (more) => args.reportValidity() && send(() => ({ decision: "allow", ...optional("arguments", args.changed()), ...more }));
  const remember = button("Allow for this session", () => answer({ remember: "session" }), { title: "Does not ask again for this tool in this session" });
  const deny = button("Deny", askForMessage, { class: "danger-text" });
  const main = form(() => answer({}), args.node, el("div", { class: "buttons" }, allow, remember, deny));
  const message = el("input", { maxlength: 2000, autocomplete: "off" });
  const reason = form(
    () => send(() => ({ decision: "deny", ...optional("message", message.value.trim() || undefined) })),
    jsonField("Arguments", action.arguments ?? {}).node,
    field("Message to the agent", message, "Optional. The agent reads it and continues without the call."),
    el("div", { class: "buttons" }, el("button", { type: "submit", class: "danger" }, "Deny"), button("Back", back)),
  );
  const container = el("div", {}, main);

  function askForMessage() {
    fill(container, reason);
    message.focus();
  }

  function back() {
    fill(container, main);
    deny.focus();
  }

  return container;
}

function toolResult(action, send) {
  const text = el("textarea", { class: "mono", rows: 3, spellcheck: "false", required: true });
  const answer = (fields) => {
    if (text.value.trim() === "") text.value = "";
    if (text.reportValidity()) send(() => withResult(fields, text.value));
  };
  return form(
    () => answer({}),
    jsonField("Arguments", action.arguments ?? {}).node,
    field("Result", text, "What the agent reads as the result of the call: JSON, or text if it is not valid JSON."),
    el("div", { class: "buttons" }, submit("Return result"), button("Return an error", () => answer({ is_error: true }))),
  );
}

function unknownOutcome(action, send) {
  const text = el("textarea", { class: "mono", rows: 2, spellcheck: "false" });
  const answer = (decision) => send(() => (text.value.trim() === "" ? { decision } : withResult({ decision }, text.value)));
  return form(
    () => answer("done"),
    jsonField("Arguments", action.arguments ?? {}).node,
    field("Result", text, "Optional. What the agent reads as the result of the call: JSON, or text if it is not valid JSON."),
    el(
      "div",
      { class: "buttons" },
      submit("It was done"),
      button("It failed", () => answer("failed")),
      button("Run again", () => send(() => ({ decision: "retry" })), { title: "Carries out the call a second time" }),
    ),
  );
}

function budget({ reached }, send) {
  const isCost = reached.limit === "max_cost_usd";
  // More than used. Costs are shown with four digits at most.
  const min = isCost ? Number((reached.used + 0.0001).toFixed(4)) : reached.used + 1;
  const suggested = Math.max(min, roundUp(2 * Math.max(reached.maximum, reached.used)));
  const input = el("input", { type: "number", min, value: String(suggested), required: true, step: isCost ? "any" : 1 });
  const stop = button("Stop run", () => send(() => ({ decision: "stop" })), { class: "danger-text" });
  const used = el("p", { class: "budget-used" }, el("strong", {}, limitUse(reached)), " used");
  const reason = reasonNotToRaise(reached);
  if (reason !== null) return form(() => {}, used, el("div", { class: "buttons" }, stop), el("p", { class: "hint" }, reason));
  return form(
    () => send(() => ({ decision: "raise", [reached.limit]: Number(input.value) })),
    used,
    field(`New limit for ${raisedScope(reached)}, in ${isCost ? "US dollars" : "tokens"}`, input),
    el("div", { class: "buttons" }, submit("Raise limit"), stop),
  );
}

/** To two significant digits: 104 → 110. */
function roundUp(value) {
  const unit = 10 ** (Math.floor(Math.log10(value)) - 1);
  return Number((Math.ceil(value / unit) * unit).toPrecision(2));
}

function optional(name, value) {
  return value === undefined ? {} : { [name]: value };
}

/** The encoded answer. The same rule as in `qd actions resolve --result`. JSON is sent as typed: parsing it would round long numbers. */
function withResult(fields, text) {
  const members = Object.entries(fields).map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`);
  return `{${[...members, `"result":${isJson(text) ? text : JSON.stringify(text)}`].join(",")}}`;
}

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function form(act, ...children) {
  const onSubmit = (event) => { event.preventDefault(); act(); };
  return el("form", { on: { submit: onSubmit } }, children);
}

function submit(label) {
  return el("button", { type: "submit", class: "primary" }, label);
}

function button(label, act, attributes = {}) {
  return el("button", { type: "button", ...attributes, on: { click: act } }, label);
}
