// The console: signs in, draws the frame, shows the page that the address names.

import { ApiError, get, onRefused } from "./api.js";
import * as credential from "./credential.js";
import { fillPage } from "./dialogs.js";
import { el, fill } from "./dom.js";
import { location, matched } from "./router.js";
import { frame } from "./frame.js";
import { faultBox } from "./notices.js";
import { show as showSignIn } from "./pages/sign_in.js";

const ROUTES = [
  ["/", () => import("./pages/sessions.js")],
  ["/sessions", () => import("./pages/sessions.js")],
  ["/sessions/:id", () => import("./pages/session.js")],
  ["/skills", () => import("./pages/skills.js")],
  ["/skills/:id", () => import("./pages/skill.js")],
  ["/skills/:id/versions/:version", () => import("./pages/skill_version.js")],
  ["/skills/:id/diff", () => import("./pages/skill_diff.js")],
  ["/keys", () => import("./pages/keys.js")],
  ["/audit", () => import("./pages/audit.js")],
  ["/workspace", () => import("./pages/workspace.js")],
  ["/activity", () => import("./pages/activity.js")],
];

let leaving = new AbortController();

/** A page has `show(view, params)`. What it starts ends with `view.signal`, which is when it is left. */
async function showPage() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  if (credential.whoami() === null && !(await recognised(signal))) return;
  if (signal.aborted) return;
  const { path, query } = location();
  const only = credential.onlySession();
  const found = only === null ? matched(ROUTES, path) : { load: () => import("./pages/session.js"), params: { id: only } };
  const main = frame(path);
  const view = {
    main,
    signal,
    query,
    /** The heading of the page, and the tab's. */
    title(text, ...beside) {
      document.title = `${text} · Quarterdeck`;
      return el("header", { class: "page-head" }, el("h1", { tabindex: "-1" }, text), beside);
    },
  };
  try {
    if (found === null) fill(main, view.title("No such page"), el("p", {}, el("a", { href: "#/sessions" }, "All sessions")));
    else await (await found.load()).show(view, found.params);
    // Unless the page knows a better place.
    if (!signal.aborted && !main.contains(document.activeElement)) main.querySelector("h1")?.focus({ preventScroll: true });
  } catch (fault) {
    if (!signal.aborted) fill(main, view.title("This page could not be shown"), faultBox(fault, showPage));
  } finally {
    main.removeAttribute("aria-busy");
  }
}

/** Whether the kept credential is good. If there is none, or it is refused, the person is asked for one. */
async function recognised(signal) {
  if (credential.secret() === null) {
    signIn(null);
    return false;
  }
  try {
    credential.signedIn(await get("/whoami", {}, signal));
    return true;
  } catch (fault) {
    if (fault instanceof ApiError && fault.status === 401) signIn(fault);
    else if (!signal.aborted) fillPage(el("main", { class: "alone" }, faultBox(fault, showPage)));
    return false;
  }
}

function signIn(reason) {
  leaving.abort();
  credential.forget();
  showSignIn(reason, showPage);
}

// In the middle of work. Several requests may be refused at once; asking once is enough.
onRefused((fault) => {
  if (credential.whoami() !== null) signIn(fault);
});
window.addEventListener("hashchange", showPage);
window.addEventListener("quarterdeck:sign-out", () => signIn(null));
// The Back button may bring this page again as it was left, though another one of this tab has signed out since.
window.addEventListener("pageshow", ({ persisted }) => {
  if (!persisted || credential.isAsLeft()) return;
  document.body.replaceChildren();
  window.location.reload();
});
showPage();
