// An OpenID provider for tests: oidc-provider, with its login page for development. The configuration is one line of JSON on
// stdin (tests/openid/real_provider.py); the server ends when stdin does. Paths below /-/ change it and are outside of the protocol.

import { generateKeyPairSync } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { Provider } from "oidc-provider";

const input = createInterface({ input: process.stdin });
const [line] = await once(input, "line");
input.on("close", () => process.exit());
const { clients, accounts, claimsInIdToken, refreshTokens, logout } = JSON.parse(line);

let numberOfKeys = 0;

function newKeys() {
  const pairs = [
    ["RS256", generateKeyPairSync("rsa", { modulusLength: 2048 })],
    ["ES256", generateKeyPairSync("ec", { namedCurve: "P-256" })],
    ["EdDSA", generateKeyPairSync("ed25519")],
  ];
  numberOfKeys += 1;
  return pairs.map(([alg, { privateKey }]) => ({
    ...privateKey.export({ format: "jwk" }),
    use: "sig",
    kid: `${alg}-${numberOfKeys}`,
    // The RSA key also signs PS256.
    ...(alg === "RS256" ? {} : { alg }),
  }));
}

let keys = newKeys();
let callback;
let issuer;

// Anew after a rotation. What was issued is kept in the memory of the library.
function build() {
  const provider = new Provider(issuer, {
    clients,
    jwks: { keys },
    cookies: { keys: ["for tests"] },
    claims: { openid: ["sub", "sid"], profile: ["name", "preferred_username"], email: ["email", "email_verified"], groups: ["groups"] },
    scopes: ["openid", "offline_access", "profile", "email", "groups"],
    conformIdTokenClaims: !claimsInIdToken,
    enabledJWA: { idTokenSigningAlgValues: ["RS256", "PS256", "ES256", "EdDSA"] },
    features: { devInteractions: { enabled: true }, rpInitiatedLogout: { enabled: logout } },
    issueRefreshToken: async (context, client) => refreshTokens && client.grantTypeAllowed("refresh_token"),
    renderError: (context, out) => {
      context.type = "text";
      context.body = `${out.error}: ${out.error_description}`;
    },
    findAccount: (context, name) => {
      const account = accounts[name];
      return account && { accountId: name, claims: () => ({ sub: name, ...account }) };
    },
    ttl: { AccessToken: 600, AuthorizationCode: 600, IdToken: 600, Grant: 86400, Interaction: 3600, RefreshToken: 86400, Session: 86400 },
  });
  callback = provider.callback();
}

async function change(request) {
  const parts = new URL(request.url, issuer).pathname.split("/").slice(2);
  let body = "";
  for await (const chunk of request) body += chunk;
  if (parts[0] === "accounts" && request.method === "PUT") accounts[parts[1]] = JSON.parse(body);
  else if (parts[0] === "accounts" && request.method === "DELETE") delete accounts[parts[1]];
  else if (parts[0] === "rotate-keys") {
    // The first key of a type signs. The old ones stay, unless they are withdrawn.
    keys = JSON.parse(body).withdraw ? newKeys() : [...newKeys(), ...keys];
    build();
  } else return 404;
  return 204;
}

const server = createServer(async (request, response) => {
  if (!request.url.startsWith("/-/")) return callback(request, response);
  response.writeHead(await change(request)).end();
});
server.listen(0, "127.0.0.1", () => {
  issuer = `http://127.0.0.1:${server.address().port}`;
  build();
  process.stdout.write(`issuer ${issuer}\n`);
});
