// The form that creates an agent, or a new version of one.

import { agentCrumbs } from "../agents/crumbs.js";
import { get, idempotentPost } from "../api.js";
import { EMPTY } from "../configuration/fields.js";
import { configurationForm } from "../configuration/form.js";
import { can } from "../credential.js";
import { field } from "../dialogs.js";
import { el, fill } from "../dom.js";
import { clearFormErrors, showFormError } from "../form_errors.js";
import { missingPermission, notice } from "../notices.js";
import { navigate } from "../router.js";
import { usedVersion } from "../versions.js";
import { visibleName } from "../visible_text.js";

const INSTRUCTION_ROWS = 14;

/** `id`: undefined for a new agent. `?from=2` starts from that version, otherwise from the one in use. */
export async function show(view, { id }) {
  if (!can("agent.manage")) {
    fill(view.main, agentCrumbs(null), view.title("New version"), missingPermission("this form", "agent.manage"));
    return;
  }
  const path = id === undefined ? null : `/agents/${encodeURIComponent(id)}`;
  const { agent, base } = path === null ? { agent: null, base: null } : await loadBase(path, view);
  if (!view.signal.aborted) draw(view, path, agent, base);
}

/** `base`: the version that the form starts from, or null. */
async function loadBase(path, { query, signal }) {
  const agent = await get(path, {}, signal);
  const from = query.get("from") ?? usedVersion(agent);
  return { agent, base: from === null ? null : await get(`${path}/versions/${encodeURIComponent(from)}`, {}, signal) };
}

function draw(view, path, agent, base) {
  const { signal } = view;
  const name = el("input", { name: "name", required: true, maxlength: 200, autocomplete: "off" });
  const form = configurationForm({ values: base ?? EMPTY, options: { signal, instructionRows: INSTRUCTION_ROWS, isFolded: false } });
  const send = idempotentPost(path === null ? "/agents" : `${path}/versions`);
  const errorContainer = el("div", {});
  const number = (agent?.latest_version ?? 0) + 1;
  const submit = el("button", { type: "submit", class: "primary" }, agent ? `Create version ${number}` : "Create agent");
  const cancel = el("a", { class: "button", href: `#${path ?? "/agents"}` }, "Cancel");

  async function onSubmit(event) {
    event.preventDefault();
    if (submit.disabled) return;
    submit.disabled = true;
    clearFormErrors(event.target, errorContainer);
    try {
      await save(new FormData(event.target));
    } catch (error) {
      if (!signal.aborted) showFormError(event.target, errorContainer, error);
    }
    submit.disabled = false;
  }

  async function save(data) {
    const configuration = { ...withoutExtras(base ?? EMPTY), ...form.values(data) };
    if (agent === null) {
      const created = await send({ name: data.get("name").trim(), version: configuration });
      notice(`${visibleName(created.name)} was created.`);
      navigate(`/agents/${created.id}`);
      return;
    }
    const { version } = await send(configuration);
    const pinned = agent.default_version;
    notice(pinned === null ? `Version ${version} created. Sessions use it from their next run.` : `Version ${version} created. Sessions still use version ${pinned}: the agent is pinned to it.`);
    navigate(path);
  }

  fill(
    view.main,
    agentCrumbs(agent),
    view.title(agent ? `New version of ${visibleName(agent.name)}` : "New agent"),
    base && el("p", { class: "muted" }, `Starts from version ${base.version}. Versions never change; this creates version ${number}.`),
    el(
      "form",
      { class: "agent-editor", on: { submit: onSubmit } },
      agent === null && field("Name", name, "Unique among the agents that are not archived."),
      form.node,
      errorContainer,
      el("div", { class: "buttons" }, submit, cancel),
    ),
  );
  if (agent === null) name.focus();
}

/** The fields of the configuration. A version has others, such as its number. */
function withoutExtras(version) {
  return Object.fromEntries(Object.keys(EMPTY).map((name) => [name, version[name]]));
}
