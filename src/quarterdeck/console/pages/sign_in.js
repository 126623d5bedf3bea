// The sign-in page: with email and password, or with a key.

import { ApiError, get, post } from "../api.js";
import * as credential from "../credential.js";
import { field } from "../dialogs.js";
import { el, fill } from "../dom.js";
import { errorBox } from "../notices.js";
import { deviceName } from "../people/device_name.js";
import { passwordField } from "../people/password_field.js";
import { problemText, providerButtons } from "../people/providers.js";
import { standalonePage } from "../people/standalone_page.js";
import { submitForm } from "../people/submit_form.js";
import { currentRoute } from "../router.js";

const INVALID = "This key is invalid, expired or revoked.";
// Browsers refuse other characters in a header, which would look like an unreachable server.
const HEADER_SAFE = /^[\x20-\x7e]*$/;

/**
 * `reason`: the error that ended the previous session, or null. `wasKey`: that session had a key or a session token.
 * `enter(person)` is called after a successful sign-in, without a person for a key. `invitationToken`: of a workspace to
 * join.
 */
export function show({ reason, wasKey, enter, invitationToken = null }) {
  const form = el("div", {});
  const { path, query } = currentRoute();
  const problem = problemText(query.get("problem"));
  const reasonBox = el("div", {}, reason && errorBox(wasKey ? withPlainMessage(reason) : reason), problem && errorBox(new Error(problem)));
  const returnTo = path === "/sign-in" ? "/" : window.location.hash.slice(1);
  standalonePage(
    reason ? "Sign in again" : "Sign in",
    reasonBox,
    providerButtons({ label: "Sign in with", path: "/sign-in/begin", returnTo }),
    form,
  );
  if (wasKey && reason) showKeyForm();
  else showPasswordForm();

  function showPasswordForm() {
    const email = el("input", { name: "email", required: true, maxlength: 254, inputmode: "email", autocomplete: "username", autocapitalize: "none", spellcheck: "false" });
    const signIn = submitForm({
      fields: [field("Email", email), passwordField("Password", "password")],
      confirm: "Sign in",
      async act(data) {
        fill(reasonBox);
        try {
          enter(await post("/sign-in", { email: data.get("email").trim(), password: data.get("password"), device_name: deviceName(), invitation_token: invitationToken }));
        } catch (error) {
          signIn.elements.namedItem("password").select();
          throw error;
        }
      },
    });
    fill(
      form,
      signIn,
      otherWay("Use an API key", showKeyForm),
      el("p", { class: "muted" }, "No account yet? Ask an admin of your workspace for an invitation. A new server prints a link for its first owner when it starts."),
    );
    email.focus();
  }

  function showKeyForm() {
    const input = el("input", { type: "password", name: "secret", required: true, autocomplete: "off", spellcheck: "false", placeholder: "qd_…" });
    fill(
      form,
      submitForm({
        fields: field("API key or session token", input, "Stored in this tab only, until you close it or sign out."),
        confirm: "Sign in",
        async act() {
          fill(reasonBox);
          await signInWithKey(input.value.trim()).catch((error) => {
            credential.clearCredential();
            input.select();
            throw withPlainMessage(error);
          });
          enter();
        },
      }),
      otherWay("Use email and password", showPasswordForm),
      el("p", { class: "muted" }, "The server prints a key when it first starts. Create more with ", el("code", {}, "qd admin create-key"), "."),
    );
    input.focus();
  }
}

async function signInWithKey(secret) {
  if (!HEADER_SAFE.test(secret)) throw new Error(INVALID);
  credential.storeSecret(secret);
  credential.setCaller(await get("/whoami"));
}

function otherWay(label, show) {
  return el("p", { class: "other-way" }, el("button", { class: "plain", type: "button", on: { click: show } }, label));
}

function withPlainMessage(error) {
  return error instanceof ApiError && error.status === 401 ? new ApiError(401, error.code, INVALID, error.requestId) : error;
}
