// Signing in at the OpenID providers that the operator has described.

import { get, post } from "../api.js";
import { el, fill } from "../dom.js";
import { errorBox } from "../notices.js";
import { visibleName } from "../visible_text.js";
import { deviceName } from "./device_name.js";

const PROBLEMS = {
  expired: "The sign-in took too long, was used before, or began in another browser. Try again.",
  refused: "The sign-in was refused.",
  failed: "The answer of the sign-in provider was not accepted. Ask whoever runs this server to look into its log.",
  unavailable: "The sign-in provider does not answer at the moment. Try again shortly.",
  email_taken: "An account with your email address exists here. Sign in with its password, then connect the provider on your profile.",
  connected_before: "Your account at the provider belongs to another account here, or your account here has another one there.",
  no_workspace: "You are not a member of any workspace. Ask an admin of your workspace.",
};
// What the server takes for a page of the console.
const PAGE = /^\/(?!\/)[\w.~!$&'()*+,;=:@%/?-]{0,499}$/;

/** What the address of the sign-in page says after a way over a provider, or null. */
export function problemText(name) {
  return name === null ? null : PROBLEMS[name] ?? "The sign-in has failed. Try again.";
}

/** A button for each provider. Empty until they are known, and if there are none. */
export function providerButtons({ label, path, returnTo }) {
  const node = el("div", { class: "providers" });
  get("/sign-in/providers").then(
    ({ providers }) => fill(node, providers.map(button)),
    (error) => fill(node, errorBox(error)),
  );
  return node;

  function button({ name, title }) {
    return el("button", { type: "button", on: { click: () => begin(name) } }, `${label} ${visibleName(title)}`);
  }

  async function begin(provider) {
    node.querySelector(".error")?.remove();
    const page = PAGE.test(returnTo) ? returnTo : "/";
    try {
      const { authorization_url: url } = await post(path, { provider, return_to: page, device_name: deviceName() });
      window.location.assign(url);
    } catch (error) {
      node.append(errorBox(error));
    }
  }
}
