// The choice of an agent and of one of its versions for a session.

import { get, listAll } from "../api.js";
import { field } from "../dialogs.js";
import { el, fill } from "../dom.js";
import { errorBox } from "../notices.js";
import { usedVersion } from "../versions.js";
import { visibleName } from "../visible_text.js";

/**
 * `current`: `{agent_id, version, name}` or null. `onChoose(configuration)` is called with the content of the chosen
 * version, with undefined until it is loaded, and with null if no agent is chosen. Returns `{node, value()}`.
 */
export function agentPicker(current, signal, onChoose) {
  const select = el("select", { name: "agent", on: { change: () => { version.value = ""; choose(); } } }, option(null));
  const version = el("input", { type: "number", min: 1, step: 1, value: current?.version ?? "", "aria-label": "Version of the agent", on: { change: choose } });
  const errorContainer = el("div", {});
  let agents = [];
  let lastChoice = 0;
  draw(current?.agent_id ?? "");
  load();

  async function load() {
    try {
      agents = await Array.fromAsync(listAll("/agents", {}, signal));
      draw(select.value);
    } catch (error) {
      if (!signal.aborted) fill(errorContainer, errorBox(error, () => { fill(errorContainer); load(); }));
    }
  }

  /** The list has no archived agents, which a session can still have. */
  function draw(chosen) {
    const usable = agents.filter((one) => one.latest_version !== null).map(({ id, name }) => ({ id, name }));
    const isMissing = current !== null && !usable.some(({ id }) => id === current.agent_id);
    fill(select, option(null), [...(isMissing ? [{ id: current.agent_id, name: current.name }] : []), ...usable].map(option));
    select.value = chosen;
    drawVersion();
  }

  function drawVersion() {
    const agent = agents.find(({ id }) => id === select.value);
    version.hidden = version.disabled = select.value === "";
    version.placeholder = agent ? `Default (v${usedVersion(agent)})` : "Default";
    if (agent) version.max = String(agent.latest_version);
  }

  async function choose() {
    lastChoice += 1;
    const choice = lastChoice;
    drawVersion();
    fill(errorContainer);
    if (select.value === "") return onChoose(null);
    onChoose(undefined);
    try {
      const path = `/agents/${select.value}`;
      const number = version.value || usedVersion(await get(path, {}, signal));
      const configuration = await get(`${path}/versions/${number}`, {}, signal);
      if (choice === lastChoice) onChoose(configuration);
    } catch (error) {
      if (!signal.aborted && choice === lastChoice) fill(errorContainer, errorBox(error));
    }
    return undefined;
  }

  const choices = el("div", { class: "agent-choice" }, select, version);
  const node = field("Agent", select, "The session takes everything below from its agent, unless you override it.");
  node.insertBefore(choices, node.querySelector(".hint"));
  choices.prepend(select);
  return {
    node: [node, errorContainer],
    choose,
    value: () => (select.value === "" ? null : { agent_id: select.value, version: version.value ? Number(version.value) : null }),
  };
}

function option(agent) {
  return el("option", { value: agent?.id ?? "" }, agent ? visibleName(agent.name) : "No agent");
}
