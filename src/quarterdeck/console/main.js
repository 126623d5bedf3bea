// Entry point: signs the user in and shows the page for the current address.

import { ApiError, get, onUnauthorized } from "./api.js";
import * as credential from "./credential.js";
import { replacePage } from "./dialogs.js";
import { el, fill } from "./dom.js";
import { drawLayout } from "./layout.js";
import { errorBox } from "./notices.js";
import { listenForShortcut } from "./palette/palette.js";
import { show as showSignIn } from "./pages/sign_in.js";
import { currentRoute, matchRoute, replaceQuery } from "./router.js";
import { setTabActivity, setTabTitle } from "./tab.js";

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
  ["/activity", () => import("./pages/activity.js")],
];

let currentPage = new AbortController();

/** Each page module exports `show(view, params)`. `view.signal` is aborted when the user leaves the page. */
async function showPage() {
  currentPage.abort();
  currentPage = new AbortController();
  const { signal } = currentPage;
  setTabActivity(null);
  takeSharedToken();
  if (credential.whoami() === null && !(await loadCaller(signal))) return;
  if (signal.aborted) return;
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

/**
 * A shared link has a session token in its query. That is a part of the fragment, which browsers do not send, and it
 * leaves the address at once. Nobody who has signed in with a key is signed out by a link.
 */
function takeSharedToken() {
  const { token, ...rest } = Object.fromEntries(currentRoute().query);
  if (token === undefined) return;
  replaceQuery(rest);
  if (!isSessionToken(token) || (credential.secret() !== null && !isSessionToken(credential.secret()))) return;
  credential.storeSecret(token);
  credential.setCaller(null);
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

/** Whether the stored credential is valid. Shows the sign-in page or an error if it is not. */
async function loadCaller(signal) {
  if (credential.secret() === null) {
    signIn(null);
    return false;
  }
  try {
    credential.setCaller(await get("/whoami", {}, signal));
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) signIn(error);
    else if (!signal.aborted) replacePage(el("main", { class: "centered" }, errorBox(error, showPage)));
    return false;
  }
}

function signIn(error) {
  currentPage.abort();
  credential.clearCredential();
  showSignIn(error, showPage);
}

// Several requests can fail with 401 at once; the sign-in page is shown once.
onUnauthorized((error) => {
  if (credential.whoami() !== null) signIn(error);
});
window.addEventListener("hashchange", showPage);
window.addEventListener("quarterdeck:sign-out", () => signIn(null));
// The back/forward cache can restore this page after the user has signed out in this tab.
window.addEventListener("pageshow", ({ persisted }) => {
  if (!persisted || credential.isUnchanged()) return;
  document.body.replaceChildren();
  window.location.reload();
});
listenForShortcut();
showPage();
