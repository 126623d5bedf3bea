// The form of a configuration. With an agent, each field either follows the agent or is set by the session.

import { el, fill } from "../dom.js";
import { EMPTY, FIELDS, isSet, LABELS, MAIN_FIELDS, MORE_FIELDS } from "./fields.js";

/**
 * Returns `{node, follow(values), release(values), values(data), inherited()}`.
 *
 * `values`: of all fields. `overrides`: the fields that the session sets itself, null without an agent. `options`: see FIELDS;
 * `isFolded`: whether the less common fields can be folded.
 */
export function configurationForm({ values, overrides = null, options: given }) {
  const names = [...MAIN_FIELDS, ...MORE_FIELDS];
  const all = { ...EMPTY, ...values };
  const options = { ...given, toolNames: all.client_tools.map(({ name }) => name) };
  const sections = Object.fromEntries(names.map((name) => [name, fieldSection(name, all[name], options)]));
  const nodes = (some) => some.map((name) => sections[name].node);
  if (overrides !== null) for (const name of names) sections[name].setOrigin(overrides.includes(name) ? "overridden" : "inherited");
  const isUsed = MORE_FIELDS.some((name) => isSet(name, all[name]));

  return {
    node: [nodes(MAIN_FIELDS), options.isFolded ? folded(nodes(MORE_FIELDS), isUsed) : nodes(MORE_FIELDS)],
    /** The session follows an agent with these values, undefined while they are loaded. What it sets itself stays. */
    follow(agentValues) {
      for (const name of names) sections[name].follow(agentValues && { ...EMPTY, ...agentValues }[name]);
    },
    /** The session has no agent. */
    release(newValues) {
      for (const name of names) sections[name].release({ ...EMPTY, ...newValues }[name]);
    },
    /** The values of the fields that do not follow the agent. */
    values(data) {
      const own = names.filter((name) => sections[name].origin !== "inherited").map((name) => [name, FIELDS[name].read(data)]);
      return Object.fromEntries(own.filter(([, value]) => value !== undefined));
    },
    /** The names of the fields that follow the agent. */
    inherited: () => names.filter((name) => sections[name].origin === "inherited"),
  };
}

/** A disabled fieldset is no part of the form's data. */
function fieldSection(name, value, options) {
  const controls = el("fieldset", { class: "setting-controls", name }, FIELDS[name].build(value, options));
  const originNode = el("p", { class: "origin", hidden: true });
  const node = el("div", { class: "setting" }, controls, originNode);
  let agentValue = value;

  const section = {
    node,
    /** `own` (without an agent), `inherited` or `overridden`. */
    origin: "own",
    setOrigin(origin) {
      const hadFocus = originNode.contains(document.activeElement);
      section.origin = origin;
      controls.disabled = origin === "inherited";
      node.classList.toggle("inherited", origin === "inherited");
      originNode.hidden = origin === "own";
      fill(originNode, origin === "inherited" && inheritedLine(), origin === "overridden" && overriddenLine());
      if (hadFocus) originNode.querySelector("button")?.focus();
    },
    follow(newAgentValue) {
      if (newAgentValue !== undefined) agentValue = newAgentValue;
      if (section.origin === "overridden") return;
      if (newAgentValue === undefined) section.setOrigin("inherited");
      else followAgain();
    },
    release(newValue) {
      fill(controls, FIELDS[name].build(newValue, options));
      section.setOrigin("own");
    },
  };

  function followAgain() {
    fill(controls, FIELDS[name].build(agentValue, options));
    section.setOrigin("inherited");
  }

  function inheritedLine() {
    return [el("span", { class: "tag" }, "From agent"), " ", originButton("Override", () => section.setOrigin("overridden"))];
  }

  function overriddenLine() {
    return [el("span", { class: "tag run" }, "Overridden"), " ", originButton("Follow agent again", followAgain)];
  }

  function originButton(text, act) {
    return el("button", { type: "button", class: "small", on: { click: act } }, text, " ", el("span", { class: "visually-hidden" }, LABELS[name]));
  }

  return section;
}

function folded(nodes, isOpen) {
  const details = el("details", { class: "more-fields", open: isOpen }, el("summary", {}, "Tools and limits"), nodes);
  // A browser cannot show the message of an invalid field while the details are closed.
  details.addEventListener("invalid", () => { details.open = true; }, { capture: true });
  return details;
}
