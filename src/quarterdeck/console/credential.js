// Who uses this tab: a person who has signed in, or a key or session token of this tab alone. The credential of a person is
// in a cookie that scripts cannot read. sessionStorage is not shared with other tabs.

const SECRET_KEY = "quarterdeck.credential";
/** The workspace that a person has chosen: of this tab, and of new ones. */
const WORKSPACE_KEY = "quarterdeck.workspace";
// Requests with the cookie need this header, because no other site can send it.
const CLIENT = `quarterdeck-console/${document.documentElement.dataset.version}`;

let caller = null;
let person = null;
let workspaceId = null;
/** The credential that `caller` was loaded with. */
let callerSecret = null;
/** Changes with the credential. */
let revision = 0;

/** The key or session token of this tab. Null: the browser may have a cookie. */
export function secret() {
  return sessionStorage.getItem(SECRET_KEY);
}

export function storeSecret(value) {
  sessionStorage.setItem(SECRET_KEY, value);
  revision += 1;
}

export function clearCredential() {
  sessionStorage.removeItem(SECRET_KEY);
  person = null;
  workspaceId = null;
  revision += 1;
  setCaller(null);
}

/** `whoami`: the response of `GET /v1/whoami`. */
export function setCaller(whoami) {
  caller = whoami;
  callerSecret = secret();
  // Session tokens must not send it.
  if (whoami !== null) workspaceId = whoami.session_id === null ? whoami.workspace_id : null;
}

/** `profile`: the response of `GET /v1/profile`. */
export function setPerson(profile) {
  if (profile.device_id !== person?.device_id) revision += 1;
  person = profile;
  const ids = profile.workspaces.map((one) => one.workspace_id);
  const wanted = [sessionStorage.getItem(WORKSPACE_KEY), localStorage.getItem(WORKSPACE_KEY)];
  workspaceId = wanted.find((id) => ids.includes(id)) ?? ids[0];
}

/** The caller has to be loaded again. */
export function chooseWorkspace(id) {
  sessionStorage.setItem(WORKSPACE_KEY, id);
  localStorage.setItem(WORKSPACE_KEY, id);
  setCaller(null);
}

/** The headers of every request. */
export function credentialHeaders() {
  /** @type {Record<string, string>} */
  const headers = { "Quarterdeck-Client": CLIENT };
  if (secret() !== null) headers.Authorization = `Bearer ${secret()}`;
  if (workspaceId !== null) headers["Service-Workspace"] = workspaceId;
  return headers;
}

export function credentialRevision() {
  return revision;
}

/** Whether this tab still has the credential that the caller was loaded with. A cookie may have been replaced. */
export function isUnchanged() {
  return person === null && callerSecret === secret();
}

export function whoami() {
  return caller;
}

/** The person who has signed in, or null for a key or a session token. */
export function profile() {
  return person;
}

export function can(permission) {
  return caller !== null && caller.permissions.includes(permission);
}

/** Why the caller is not allowed to do something. */
export function reasonAgainst(permission) {
  const holder = person === null ? "your key" : `your role (${caller.role})`;
  return `${holder} does not have the permission ${permission}.`;
}

/** The only session that a session token gives access to. Null for others. */
export function tokenSessionId() {
  return caller?.session_id ?? null;
}
