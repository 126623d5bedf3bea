// The credential of this tab and the caller it belongs to. sessionStorage is not shared with other tabs.

const STORAGE_KEY = "quarterdeck.credential";

let caller = null;
/** The credential that `caller` was loaded with. */
let callerSecret = null;

export function secret() {
  return sessionStorage.getItem(STORAGE_KEY);
}

export function storeSecret(value) {
  sessionStorage.setItem(STORAGE_KEY, value);
}

export function clearCredential() {
  sessionStorage.removeItem(STORAGE_KEY);
  setCaller(null);
}

/** `whoami`: the response of `GET /v1/whoami`. */
export function setCaller(whoami) {
  caller = whoami;
  callerSecret = secret();
}

/** Whether the stored credential is still the one that the caller was loaded with. */
export function isUnchanged() {
  return callerSecret === secret();
}

export function whoami() {
  return caller;
}

export function can(permission) {
  return caller !== null && caller.permissions.includes(permission);
}

/** The only session that a session token gives access to. Null for API keys. */
export function tokenSessionId() {
  return caller?.session_id ?? null;
}
