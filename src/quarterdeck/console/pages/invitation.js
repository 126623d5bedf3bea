// The page of a link that lets somebody into a workspace, or lets them choose a new password.

import { ApiError, get, post } from "../api.js";
import { chooseWorkspace, clearCredential, secret } from "../credential.js";
import { field } from "../dialogs.js";
import { el } from "../dom.js";
import { capitalize } from "../format.js";
import { errorBox } from "../notices.js";
import { deviceName } from "../people/device_name.js";
import { newPassword, passwordField } from "../people/password_field.js";
import { standalonePage } from "../people/standalone_page.js";
import { submitForm } from "../people/submit_form.js";
import { currentRoute, replaceQuery } from "../router.js";
import { userName } from "../users.js";
import { visibleName, visibleText } from "../visible_text.js";
import { show as showSignIn } from "./sign_in.js";

/** In memory only, so that neither the history nor the storage of the browser keeps it. */
let token = null;

/** `enter(person)` is called when somebody has signed in with the link. */
export async function show(signal, enter) {
  const given = currentRoute().query.get("token");
  if (given !== null) {
    token = given;
    replaceQuery({});
  }
  if (token === null) return showUnusable("Open the link from your invitation again.");
  if (secret() !== null) return showSignedIn(null, "with a key or a session token in this tab", clearCredential);
  try {
    const invitation = await post("/invitations/look-up", { token }, signal);
    const profile = await currentProfile(signal);
    if (!signal.aborted) showFound(invitation, profile);
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof ApiError && error.status === 404) showUnusable("This link was used, was withdrawn or has expired. Ask for a new one.");
    else standalonePage("Invitation", errorBox(error, () => show(signal, enter)));
  }

  function showFound(invitation, profile) {
    const isOther = profile !== null && profile.user.primary_email?.toLowerCase() !== invitation.email.toLowerCase();
    if (isOther) showSignedIn(invitation, `as ${personName(profile)}`, signOut, invitation.workspace_name !== null && joinButton(profile));
    else if (invitation.workspace_name === null) showNewPassword(invitation);
    else if (profile !== null) showJoin(invitation, profile);
    else if (invitation.has_account) showHasAccount(invitation);
    else showNewAccount(invitation);
  }

  function showNewAccount(invitation) {
    standalonePage(
      title(invitation),
      purpose(invitation),
      submitForm({
        fields: [
          field("Email", el("input", { name: "email", value: invitation.email, readonly: true, autocomplete: "username" })),
          field("Name", el("input", { name: "display_name", required: true, maxlength: 200, autocomplete: "name" }), "Shown to the other members."),
          passwordField("Password", "password", { isNew: true }),
        ],
        confirm: "Create account",
        act: accept,
      }),
    );
  }

  /** A link of the operator. */
  function showNewPassword(invitation) {
    const email = el("input", { name: "email", value: invitation.email, required: true, maxlength: 254, inputmode: "email", autocomplete: "username", autocapitalize: "none", spellcheck: "false" });
    standalonePage(
      "Choose a password",
      el("p", {}, "This link is for the account ", el("strong", {}, visibleText(invitation.email)), ". It signs out all other devices of the account."),
      submitForm({
        fields: [
          field("Email", email, "You sign in with it. You can enter another address."),
          field("Name", el("input", { name: "display_name", maxlength: 200, autocomplete: "name" }), "Shown to the other members. Leave it empty to keep the name of the account."),
          passwordField("New password", "password", { isNew: true }),
        ],
        confirm: "Save and sign in",
        act(data) {
          const email = data.get("email").trim();
          return accept(data, email === invitation.email ? {} : { email });
        },
      }),
    );
  }

  async function accept(data, more = {}) {
    const body = { token, password: newPassword(data, "password"), display_name: data.get("display_name").trim() || null, device_name: deviceName(), ...more };
    finish(await post("/invitations/accept", body));
  }

  function showHasAccount(invitation) {
    async function enterInvited(person) {
      const { workspaces } = await get("/profile");
      const joined = workspaces.findLast((one) => one.workspace_name === invitation.workspace_name);
      if (joined !== undefined) chooseWorkspace(joined.workspace_id);
      finish(person);
    }

    const signIn = () => showSignIn({ reason: null, wasKey: false, enter: enterInvited, invitationToken: token });
    standalonePage(
      title(invitation),
      purpose(invitation),
      el("p", {}, el("strong", {}, visibleText(invitation.email)), " has an account here. Sign in to join."),
      el("div", { class: "buttons" }, el("button", { class: "primary", type: "button", on: { click: signIn } }, "Sign in to join")),
    );
  }

  function showJoin(invitation, profile) {
    standalonePage(title(invitation), purpose(invitation), actions(joinButton(profile)));
  }

  /** Somebody else uses this browser, or nothing was looked up yet: `invitation` is null. */
  function showSignedIn(invitation, how, leave, otherButton = null) {
    const leaveAndContinue = async () => {
      await leave();
      await show(signal, enter);
    };
    standalonePage(
      invitation?.workspace_name ? title(invitation) : "You are signed in",
      invitation?.workspace_name && purpose(invitation),
      el(
        "p",
        { class: "caution" },
        invitation !== null && ["This link is for ", el("strong", {}, visibleText(invitation.email)), ". "],
        `You are signed in ${how}.`,
      ),
      actions(actionButton("Sign out and continue", leaveAndContinue), otherButton),
    );
  }

  function joinButton(profile) {
    return actionButton(`Join as ${personName(profile)}`, async () => {
      const before = profile.workspaces.map((one) => one.workspace_id);
      const after = await post("/workspace/join", { token });
      chooseWorkspace(after.workspaces.find((one) => !before.includes(one.workspace_id)).workspace_id);
      finish(null);
    });
  }

  function finish(person) {
    token = null;
    clearCredential();
    window.history.replaceState(null, "", "#/sessions");
    enter(person);
  }
}

/** The first button is the main one. Errors are shown above it. */
function actions(...buttons) {
  const shown = buttons.filter(Boolean);
  shown[0].classList.add("primary");
  return el("div", {}, el("div", { class: "buttons" }, shown));
}

function actionButton(label, act) {
  async function onClick() {
    const errors = button.closest(".buttons");
    errors.parentElement.querySelector(".error")?.remove();
    button.disabled = true;
    await act().catch((error) => errors.before(errorBox(error)));
    button.disabled = false;
  }
  const button = el("button", { type: "button", on: { click: onClick } }, label);
  return button;
}

async function signOut() {
  await post("/sign-out").catch((error) => {
    if (error.status !== 401) throw error;
  });
  clearCredential();
}

function personName({ user }) {
  return visibleText(user.primary_email ?? userName(user));
}

function showUnusable(text) {
  standalonePage("This link cannot be used", el("p", {}, text), el("p", {}, el("a", { href: "#/sign-in" }, "Sign in")));
}

function title({ workspace_name: name }) {
  return `Join ${visibleName(name)}`;
}

function purpose({ workspace_name: name, role, invited_by: inviter }) {
  return el("p", {}, inviter === null ? "You are invited" : [el("strong", {}, visibleName(inviter)), " invites you"], " to the workspace ", el("strong", {}, visibleName(name)), " with the role ", el("strong", {}, capitalize(role)), ".");
}

/** Of the person whose cookie the browser has, or null. */
function currentProfile(signal) {
  return get("/profile", {}, signal).catch((error) => {
    if (error instanceof ApiError && error.status === 401) return null;
    throw error;
  });
}
