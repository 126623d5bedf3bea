// CI jobs that may push a skill without a stored secret: a section of the page of API keys.

import { idempotentPost, listAll, remove } from "../api.js";
import { can } from "../credential.js";
import { field, formDialog, messageDialog } from "../dialogs.js";
import { copyButton } from "../clipboard.js";
import { el, fill } from "../dom.js";
import { errorBox, loading } from "../notices.js";
import { table } from "../tables.js";
import { relativeTime } from "../time_format.js";
import { visibleName } from "../visible_text.js";

const ISSUERS = ["https://token.actions.githubusercontent.com", "https://gitlab.com"];

export function trustedJobsSection(signal) {
  const list = el("div", {}, loading("trusted jobs"));
  const mayTrust = can("key.manage") && can("skill.manage");
  const button = mayTrust && el("button", { type: "button", on: { click: create } }, "Trust a job");
  const node = el(
    "section",
    {},
    el("div", { class: "section-head" }, el("h2", { class: "section" }, "Trusted jobs"), button),
    el("p", { class: "muted" }, "A CI job can push versions of a skill without a stored secret: it shows a token that its CI system has signed."),
    list,
  );
  draw();
  return node;

  async function draw() {
    try {
      const jobs = await Array.fromAsync(listAll("/trusted-jobs", {}, signal));
      const skills = await skillsById();
      const columns = [
        { name: "Job", cell: (job) => el("div", {}, el("span", { class: "name" }, visibleName(job.name)), el("div", {}, el("code", {}, job.id), " ", copyButton(job.id, "job ID"))) },
        { name: "Skill", class: "short", cell: (job) => el("a", { href: `#/skills/${job.skill_id}` }, visibleName(skills.get(job.skill_id) ?? "Archived")) },
        { name: "Claims", cell: claims },
        { name: "Last used", class: "short", cell: (job) => relativeTime(job.last_used_at) },
      ];
      if (can("key.manage")) columns.push({ name: "Actions", class: "actions", cell: endButton });
      fill(list, jobs.length === 0 ? el("p", { class: "muted" }, "No job is trusted.") : table("Trusted jobs", columns, jobs));
    } catch (error) {
      if (!signal.aborted) fill(list, errorBox(error, draw));
    }
  }

  async function skillsById() {
    const skills = await Array.fromAsync(listAll("/skills", {}, signal));
    return new Map(skills.map((skill) => [skill.id, skill.name]));
  }

  async function create() {
    const skills = await skillsById().catch(() => new Map());
    if (signal.aborted) return;
    const issuers = el("datalist", { id: "issuers" }, ISSUERS.map((url) => el("option", { value: url })));
    const created = await formDialog({
      title: "Trust a job",
      fields: [
        field("Name", el("input", { name: "name", required: true, maxlength: 200, autocomplete: "off" }), "For this list and the audit log."),
        field("Skill", el("select", { name: "skill", required: true }, [...skills].map(([id, name]) => el("option", { value: id }, visibleName(name)))), "The job may push versions of it, and nothing else."),
        field("Issuer", el("input", { name: "issuer", required: true, type: "url", list: "issuers", maxlength: 2000, spellcheck: "false" }), "The address of the CI system in its tokens."),
        issuers,
        field("Claims", el("textarea", { name: "claims", required: true, rows: 3, spellcheck: "false", placeholder: "repository=acme/skills\nref=refs/heads/main" }), "One on each line. * stands for any characters but / and :"),
      ],
      confirm: "Trust job",
      act: (data) => idempotentPost(`/skills/${data.get("skill")}/trusted-jobs`)({ name: data.get("name").trim(), issuer: data.get("issuer").trim(), claims: readClaims(data.get("claims")) }),
    });
    if (created === null) return;
    await messageDialog({
      title: "Set up the job",
      body: [
        el("p", {}, "Let the job ask its CI system for a token with this audience:"),
        el("p", {}, el("code", {}, created.id), " ", copyButton(created.id, "audience")),
        el("p", {}, "Then it runs ", el("code", {}, `qd trusted-jobs exchange ${created.id}`), " with the token as input."),
      ],
    });
    await draw();
    /** @type {HTMLElement} */ (button).focus();
  }

  function endButton(job) {
    return el("button", { class: "small", type: "button", "aria-label": `Remove ${visibleName(job.name)}`, on: { click: () => end(job) } }, "Remove");
  }

  async function end(job) {
    const done = await formDialog({
      title: `Trust “${visibleName(job.name)}” no longer?`,
      fields: el("p", {}, "Its keys stop working at once."),
      confirm: "Remove job",
      danger: true,
      act: () => remove(`/trusted-jobs/${job.id}`),
    });
    if (done === null || signal.aborted) return;
    await draw();
    if (mayTrust) /** @type {HTMLElement} */ (button).focus();
  }
}

function claims(job) {
  const shown = Object.entries(job.claims).map(([name, value]) => el("li", {}, el("code", {}, `${name}=${value}`)));
  return el("div", {}, el("div", { class: "muted small-text" }, job.issuer), el("ul", { class: "tags" }, shown));
}

function readClaims(text) {
  const found = {};
  for (const line of text.split("\n").map((one) => one.trim()).filter(Boolean)) {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`“${line}” is not of the form name=value.`);
    found[line.slice(0, at)] = line.slice(at + 1);
  }
  return found;
}
