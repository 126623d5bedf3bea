// Entry point: signs the user in and shows the page for the current address.

import { ApiError, get, onRefused, post } from "./api.js";
import * as credential from "./credential.js";
import { replacePage } from "./dialogs.js";
import { el, fill } from "./dom.js";
import { drawLayout } from "./layout.js";
import { errorBox, notice } from "./notices.js";
import { problemText } from "./people/providers.js";
import { listenForShortcut } from "./palette/palette.js";
import { show as showInvitation } from "./pages/invitation.js";
import { show as showSignIn } from "./pages/sign_in.js";
import { currentRoute, matchRoute, navigate, replaceQuery } from "./router.js";
import { setTabActivity, setTabTitle } from "./tab.js";
import { visibleName } from "./visible_text.js";

const ROUTES = [
  ["/", () => import("./pages/sessions.js")],
  ["/sessions", () => import("./pages/sessions.js")],
  ["/sessions/:id", () => import("./pages/session.js")],
  ["/inbox", () => import("./pages/inbox.js")],
  ["/skills", () => import("./pages/skills.js")],
  ["/skills/:id", () => import("./pages/skill.js")],
  ["/skills/:id/versions/:version", () => import("./pages/skill_version.js")],
  ["/skills/:id/diff", () => import("./pages/skill_diff.js")],
  ["/agents", () => import("./pages/agents.js")],
  ["/agents/new", () => import("./pages/agent_editor.js")],
  ["/agents/:id", () => import("./pages/agent.js")],
  ["/agents/:id/edit", () => import("./pages/agent_editor.js")],
  ["/agents/:id/versions/:version", () => import("./pages/agent_version.js")],
  ["/agents/:id/diff", () => import("./pages/agent_diff.js")],
  ["/mcp-servers", () => import("./pages/mcp_servers.js")],
  ["/mcp-servers/:id", () => import("./pages/mcp_server.js")],
  ["/credentials", () => import("./pages/credentials.js")],
  ["/keys", () => import("./pages/keys.js")],
  ["/webhooks", () => import("./pages/webhooks.js")],
  ["/webhooks/:id", () => import("./pages/webhook.js")],
  ["/audit", () => import("./pages/audit.js")],
  ["/workspace", () => import("./pages/workspace.js")],
  ["/members", () => import("./pages/members.js")],
  ["/profile", () => import("./pages/profile.js")],
  ["/devices/approve", () => import("./pages/approve_device.js")],
  ["/activity", () => import("./pages/activity.js")],
];

const INVITATION = "/invitation";
const SIGN_IN = "/sign-in";
const SIGNED_OUT = "You have been signed out. The sign-in has ended, or you are no longer a member of the workspace.";

let currentPage = new AbortController();
/** From a shared link, for somebody who has not signed in. */
let sharedToken = null;
/** The cookie is shared with all tabs of the browser. Messages are ids of people, or null after signing out. */
const otherTabs = new BroadcastChannel("quarterdeck.person");

/** Each page module exports `show(view, params)`. `view.signal` is aborted when the user leaves the page. */
async function showPage() {
  currentPage.abort();
  currentPage = new AbortController();
  const { signal } = currentPage;
  setTabActivity(null);
  if (currentRoute().path === INVITATION) return showInvitation(signal, enter);
  takeSharedToken();
  if (credential.whoami() === null && !(await loadCaller(signal))) return;
  if (signal.aborted) return;
  if (currentRoute().path === SIGN_IN) leaveSignIn();
  const { path, query } = currentRoute();
  const tokenSession = credential.tokenSessionId();
  const route =
    tokenSession === null
      ? matchRoute(ROUTES, path)
      : { load: () => import("./pages/session.js"), params: { id: tokenSession } };
  const main = drawLayout(path);
  const view = {
    main,
    signal,
    query,
    /** The header of the page. Also sets the title of the tab. */
    title(text, ...actions) {
      setTabTitle(text);
      return el("header", { class: "page-head" }, el("h1", { tabindex: "-1" }, text), actions);
    },
  };
  try {
    if (route === null) fill(main, view.title("Page not found"), allSessions());
    else await (await route.load()).show(view, route.params);
    // Focus the heading unless the page has moved the focus itself.
    if (!signal.aborted && !main.contains(document.activeElement)) main.querySelector("h1")?.focus({ preventScroll: true });
  } catch (error) {
    if (!signal.aborted) showError(view, error);
  } finally {
    main.removeAttribute("aria-busy");
  }
}

/** Somebody who has signed in sees another page there, and why a provider could not be connected. */
function leaveSignIn() {
  const problem = problemText(currentRoute().query.get("problem"));
  window.history.replaceState(null, "", problem === null ? "#/sessions" : "#/profile");
  if (problem !== null) setTimeout(() => notice(problem));
}

/**
 * A shared link has a session token in its query. That is a part of the fragment, which browsers do not send, and it
 * leaves the address at once. Nobody who has signed in otherwise is signed out by a link.
 */
function takeSharedToken() {
  const { token, ...rest } = Object.fromEntries(currentRoute().query);
  if (token === undefined) return;
  replaceQuery(rest);
  if (!isSessionToken(token)) return;
  if (credential.secret() === null && credential.whoami() === null) sharedToken = token;
  else if (isSessionToken(credential.secret())) useToken(token);
}

function useToken(token) {
  credential.clearCredential();
  credential.storeSecret(token);
  sharedToken = null;
}

function isSessionToken(secret) {
  return /^qds_\w+$/.test(secret);
}

function showError(view, error) {
  const isNotFound = error instanceof ApiError && error.status === 404;
  const title = isNotFound ? "Not found" : "This page could not be loaded";
  fill(view.main, view.title(title), errorBox(error, showPage), isNotFound && allSessions());
}

function allSessions() {
  return el("p", {}, el("a", { href: "#/sessions" }, "All sessions"));
}

/** Whether there is a valid credential. Shows the sign-in page or an error if there is none. */
async function loadCaller(signal) {
  try {
    if (credential.secret() === null) await loadPerson(signal);
    if (credential.secret() === null && credential.profile() === null) {
      signIn(null);
      return false;
    }
    credential.setCaller(await get("/whoami", {}, signal));
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) signIn(error);
    else if (!signal.aborted) replacePage(el("main", { class: "centered" }, errorBox(error, showPage)));
    return false;
  }
}

/** If the browser has a cookie. Else a shared link gives access to its session. */
async function loadPerson(signal) {
  try {
    credential.setPerson(await get("/profile", {}, signal));
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 401)) throw error;
    if (sharedToken !== null) useToken(sharedToken);
  }
}

/** Shows the sign-in page, and the same page as now after the sign-in. */
function signIn(error) {
  currentPage.abort();
  const wasKey = credential.secret() !== null;
  const reason = error instanceof ApiError && credential.profile() !== null ? new Error(SIGNED_OUT) : error;
  credential.clearCredential();
  showSignIn({ reason, wasKey, enter });
}

/** After somebody has signed in with the cookie, or with a key if `person` is null. */
function enter(person = null) {
  if (person !== null) otherTabs.postMessage(person.user_id);
  showPage();
}

async function signOut() {
  if (credential.profile() === null) {
    currentPage.abort();
    credential.clearCredential();
    replacePage();
    return showPage();
  }
  let endUrl = null;
  try {
    endUrl = (await post("/sign-out")).end_session_url;
  } catch (error) {
    if (error.status !== 401) return notice(`You are still signed in: ${error.message}`);
  }
  otherTabs.postMessage(null);
  // Signs out at the OpenID provider, too, which sends the browser back.
  if (endUrl === null) signIn(null);
  else window.location.assign(endUrl);
}

/** Shows another workspace of the person, or the sign-in page if there is none. */
async function leaveWorkspace() {
  const text = `You are no longer a member of ${visibleName(credential.whoami().workspace_name)}.`;
  currentPage.abort();
  credential.setCaller(null);
  try {
    credential.setPerson(await get("/profile"));
  } catch (error) {
    return signIn(error.status === 401 ? new Error(text) : error);
  }
  window.history.replaceState(null, "", "#/sessions");
  await showPage();
  notice(text);
}

let isChecking = false;

/** Somebody who was removed from one of several workspaces gets 404 for everything there. */
async function checkMembership() {
  const workspaceId = credential.whoami()?.workspace_id;
  if (credential.profile() === null || workspaceId === undefined || isChecking) return;
  isChecking = true;
  const found = await get("/profile").catch(() => null);
  isChecking = false;
  const isMember = found === null || found.workspaces.some((one) => one.workspace_id === workspaceId);
  if (!isMember && credential.whoami()?.workspace_id === workspaceId) leaveWorkspace();
}

onRefused((error) => {
  if (error.status === 404) checkMembership();
  // Several requests can fail with 401 at once; the sign-in page is shown once.
  else if (credential.whoami() !== null) signIn(error);
});
otherTabs.addEventListener("message", ({ data }) => {
  if (credential.profile() !== null && credential.profile().user.user_id !== data) window.location.reload();
});
window.addEventListener("hashchange", showPage);
window.addEventListener("quarterdeck:sign-out", signOut);
window.addEventListener("quarterdeck:left-workspace", leaveWorkspace);
window.addEventListener("quarterdeck:choose-workspace", (event) => {
  credential.chooseWorkspace(/** @type {CustomEvent} */ (event).detail);
  if (currentRoute().path === "/sessions") showPage();
  else navigate("/sessions");
});
// The back/forward cache can restore this page after the user has signed out in this tab.
window.addEventListener("pageshow", ({ persisted }) => {
  if (!persisted || credential.isUnchanged()) return;
  document.body.replaceChildren();
  window.location.reload();
});
listenForShortcut();
showPage();
