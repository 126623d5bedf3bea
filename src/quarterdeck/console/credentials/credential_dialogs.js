// Dialogs that create, rotate and delete a credential. The secret is typed here and never shown again.

import { idempotentPost, remove } from "../api.js";
import { field, formDialog } from "../dialogs.js";
import { el, fill } from "../dom.js";
import { notice } from "../notices.js";
import { visibleName } from "../visible_text.js";
import { KINDS } from "./kinds.js";

const OAUTH = "oauth_client_credentials";

/** Returns the new credential, or null. */
export async function createCredential() {
  const send = idempotentPost("/credentials");
  const created = await formDialog({
    title: "Create credential",
    fields: credentialFields(),
    confirm: "Create credential",
    act: (data) => send(requestBody(data)),
  });
  if (created !== null) notice("Credential created.");
  return created;
}

/** Returns the changed credential, or null. */
export async function rotateCredential(credential) {
  const send = idempotentPost(`/credentials/${credential.id}/rotate`);
  const changed = await formDialog({
    title: `Rotate “${visibleName(credential.name)}”?`,
    fields: [
      el("p", {}, "Servers get the new secret from now on. The old one is overwritten; revoke it where it was issued."),
      secretField(KINDS[credential.kind]?.[2] ?? "Secret"),
    ],
    confirm: "Rotate",
    act: (data) => send({ secret: data.get("secret") }),
  });
  if (changed !== null) notice("Secret rotated.");
  return changed;
}

/** Returns whether the credential was deleted. The server refuses to delete one that an MCP server uses. */
export async function deleteCredential(credential) {
  const done = await formDialog({
    title: `Delete “${visibleName(credential.name)}”?`,
    fields: el("p", {}, "This deletes the credential and its secret. Credentials that an MCP server uses can't be deleted. This can't be undone."),
    confirm: "Delete credential",
    danger: true,
    act: () => remove(`/credentials/${credential.id}`),
  });
  if (done !== null) notice("Credential deleted.");
  return done !== null;
}

function credentialFields() {
  const name = el("input", { name: "name", required: true, maxlength: 200, autocomplete: "off", autofocus: true });
  const options = Object.entries(KINDS).map(([value, [label]]) => el("option", { value }, label));
  const kind = el("select", { name: "kind", on: { change: draw } }, options);
  const kindField = field("Kind", kind, " ");
  const more = el("div", {});
  function draw() {
    const [, hint, secretLabel] = KINDS[kind.value];
    kindField.querySelector(".hint").textContent = hint;
    fill(more, kind.value === "header" && headerField(), kind.value === OAUTH && oauthFields(), secretField(secretLabel));
  }
  draw();
  return [field("Name", name), kindField, more];
}

function secretField(label) {
  const input = el("input", { type: "password", name: "secret", required: true, minlength: 8, maxlength: 8192, autocomplete: "new-password", spellcheck: "false" });
  return field(label, input, "At least 8 characters. Stored encrypted. You won't be able to see it again.");
}

function textField(label, name, attributes, hint = null) {
  return field(label, el("input", { name, autocomplete: "off", spellcheck: "false", ...attributes }), hint);
}

function headerField() {
  return textField("Header", "header", { required: true, maxlength: 100, placeholder: "X-Api-Key", pattern: "[A-Za-z0-9!#$%&'*+.^_`\\|~\\-]+", title: "The name of a header" });
}

function oauthFields() {
  return [
    textField("Token endpoint", "token_url", { type: "url", required: true, maxlength: 2000, placeholder: "https://" }),
    textField("Client ID", "client_id", { required: true, maxlength: 1000 }),
    textField("Scope", "scope", { maxlength: 1000 }, "Optional. Scopes separated by spaces."),
    textField("Audience", "audience", { maxlength: 1000 }, "Optional. Some servers ask for it."),
  ];
}

/** Fields of other kinds are not in the form. */
function requestBody(data) {
  const text = (name) => data.get(name)?.trim() || null;
  const parameters = ["header", "token_url", "client_id", "scope", "audience"].map((name) => [name, text(name)]);
  return {
    name: data.get("name").trim(),
    kind: data.get("kind"),
    secret: data.get("secret"),
    ...Object.fromEntries(parameters.filter(([, value]) => value !== null)),
  };
}
