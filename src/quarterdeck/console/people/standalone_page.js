// Pages for people who have not signed in: a narrow column with the name of the product.

import { replacePage } from "../dialogs.js";
import { el } from "../dom.js";
import { HELP_LINKS } from "../navigation.js";
import { setTabActivity, setTabTitle } from "../tab.js";

export function standalonePage(title, ...content) {
  setTabActivity(null);
  setTabTitle(title);
  replacePage(
    el(
      "main",
      { class: "sign-in" },
      el("div", { class: "brand" }, el("span", { class: "brand-mark", "aria-hidden": "true" }), "Quarterdeck"),
      el("h1", { tabindex: "-1" }, title),
      content,
      el("p", { class: "muted help" }, HELP_LINKS.map(({ url, name }, index) => [index > 0 && " · ", el("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, name)])),
    ),
  );
  const focused = document.querySelector("main input:not([readonly])") ?? document.querySelector("h1");
  /** @type {HTMLElement} */ (focused).focus();
}
