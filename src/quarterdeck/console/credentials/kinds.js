// The kinds of credentials for MCP servers.

import { el } from "../dom.js";
import { visibleText } from "../visible_text.js";

/** Kind: [name, hint, label of the secret]. */
export const KINDS = {
  bearer: ["Bearer token", "Sent as “Authorization: Bearer …” with every request.", "Token"],
  header: ["Header", "Sent as the value of a header of your choice.", "Value of the header"],
  oauth_client_credentials: ["OAuth client credentials", "Quarterdeck gets a token from the token endpoint and renews it. Sign-in in a browser is not supported.", "Client secret"],
};

export function kindName({ kind }) {
  return KINDS[kind]?.[0] ?? kind;
}

/** What the credential shows of itself: the header, or the token endpoint and the client. */
export function parametersOf({ header, token_url: tokenUrl, client_id: clientId, scope, audience }) {
  const parts = [
    header && ["Header", header],
    tokenUrl && ["Token endpoint", tokenUrl],
    clientId && ["Client ID", clientId],
    scope && ["Scope", scope],
    audience && ["Audience", audience],
  ].filter(Boolean);
  if (parts.length === 0) return el("span", { class: "muted" }, "–");
  return el("div", {}, parts.map(([name, value]) => el("div", {}, el("span", { class: "muted" }, `${name} `), el("code", {}, visibleText(value)))));
}
