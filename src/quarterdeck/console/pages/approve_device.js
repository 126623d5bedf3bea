// Approves the code that `qd login` shows.

import { post } from "../api.js";
import { profile } from "../credential.js";
import { field } from "../dialogs.js";
import { el, fill } from "../dom.js";
import { FieldError } from "../form_errors.js";
import { errorBox } from "../notices.js";
import { personRequired } from "../people/person_required.js";
import { submitForm } from "../people/submit_form.js";
import { replaceQuery } from "../router.js";
import { relativeTime } from "../time_format.js";
import { userName } from "../users.js";
import { visibleName } from "../visible_text.js";

export async function show(view) {
  const head = view.title("Sign in a device");
  if (profile() === null) {
    fill(view.main, head, personRequired("approve a device"));
    return;
  }
  const content = el("div", { class: "narrow" });
  fill(view.main, head, content);
  const given = view.query.get("code");
  replaceQuery({});
  if (given === null) showForm("");
  else await lookUp(given).catch((error) => showForm(given, error));

  function showForm(code, error = null) {
    const input = el("input", { name: "user_code", required: true, maxlength: 40, value: code, class: "code-input", placeholder: "XXXX-XXXX", autocomplete: "off", autocapitalize: "characters", spellcheck: "false" });
    fill(
      content,
      el("p", {}, el("code", {}, "qd login"), " shows a code in your terminal. Enter it here to sign in the command line there."),
      submitForm({ fields: [field("Code", input), error && errorBox(error)], confirm: "Continue", act: (data) => lookUp(data.get("user_code")) }),
    );
    input.focus();
  }

  async function lookUp(code) {
    const found = await post("/device-codes/look-up", { user_code: code }, view.signal).catch((error) => {
      throw error.status === 404 ? new FieldError("user_code", "This code is unknown, has expired or was used. Check it in your terminal.") : error;
    });
    if (!view.signal.aborted) showRequest(found);
  }

  function showRequest({ user_code: code, device_name: name, address, expires_at: expiresAt }) {
    const deny = el("button", { type: "button", on: { click: () => answer(false).catch((error) => form.append(errorBox(error))) } }, "Deny");
    const answer = async (approve) => showAnswer(await post("/device-codes/answer", { user_code: code, approve }));
    const form = submitForm({ fields: null, confirm: "Approve", act: () => answer(true), more: deny });
    fill(
      content,
      el(
        "section",
        { class: "card" },
        el("h2", {}, `Sign in “${visibleName(name)}” as ${userName(profile().user)}?`),
        el("p", { class: "user-code" }, code),
        el("dl", { class: "facts" }, [
          ["Device", visibleName(name)],
          ["Address", address ?? "Unknown"],
          ["Expires", relativeTime(expiresAt)],
        ].map(([label, value]) => [el("dt", {}, label), el("dd", {}, value)])),
        el("p", { class: "caution" }, "Approve only if your own terminal shows exactly this code now. If somebody sent you the code or the link, deny: they would act in your name."),
        form,
      ),
    );
    view.main.querySelector("h1").focus();
  }

  function showAnswer({ device_name: name, approved }) {
    const text = approved ? `“${visibleName(name)}” is signed in. Go back to your terminal.` : `“${visibleName(name)}” was not signed in.`;
    fill(
      content,
      el("div", { class: "empty", role: "status" }, el("h2", {}, approved ? "Approved" : "Denied"), el("p", {}, text)),
      el("p", {}, approved && ["You can sign it out again in your ", el("a", { href: "#/profile" }, "profile"), "."]),
    );
    view.main.querySelector("h1").focus();
  }
}
