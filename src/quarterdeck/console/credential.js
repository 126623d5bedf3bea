// Who is signed in. Kept for this tab only: it is gone with the tab, and no other tab or server sees it.

const STORED = "quarterdeck.credential";

let caller = null;
/** Whose `caller` is. */
let callerSecret = null;

export function secret() {
  return sessionStorage.getItem(STORED);
}

export function keep(given) {
  sessionStorage.setItem(STORED, given);
}

export function forget() {
  sessionStorage.removeItem(STORED);
  signedIn(null);
}

/** What `GET /v1/whoami` said. */
export function signedIn(found) {
  caller = found;
  callerSecret = secret();
}

/** Whether the tab still holds the credential that this page knows. */
export function isAsLeft() {
  return callerSecret === secret();
}

export function whoami() {
  return caller;
}

export function can(permission) {
  return caller !== null && caller.permissions.includes(permission);
}

/** A session token opens one session and nothing else. */
export function onlySession() {
  return caller?.session_id ?? null;
}
