"""A Chromium that opens the console. A test fails if the page logs an error or sends a request to another host."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, NoReturn

import pytest
from playwright.async_api import Browser, BrowserContext, Locator, Page, async_playwright, expect

AXE = Path(__file__).parent / "node_modules/axe-core/axe.min.js"
NARROW, WIDE = 360, 1280
# Resolves to this machine. Browsers treat it as insecure, unlike localhost.
HOST_WITHOUT_TLS = "quarterdeck.example"
# Long enough for a busy machine.
TIMEOUT_MS = 30_000
expect.set_options(timeout=TIMEOUT_MS)

Scheme = Literal["dark", "light"]

# Pieces of text that overlap, without what is scrolled away or cut off. Text lies over the page in the footer only.
_OVERLAPS = """
() => {
  const boxes = [];
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    const isShown = parent.checkVisibility({opacityProperty: true, visibilityProperty: true});
    if (!node.data.trim() || !isShown || parent.closest(".conversation-footer, .visually-hidden, svg")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const {left, right, top, bottom} of range.getClientRects()) {
      const box = {left, right, top, bottom, node};
      for (let around = parent; around.localName !== "main"; around = around.parentElement) {
        if (getComputedStyle(around).overflow === "visible") continue;
        const edge = around.getBoundingClientRect();
        box.left = Math.max(box.left, edge.left);
        box.right = Math.min(box.right, edge.right);
        box.top = Math.max(box.top, edge.top);
        box.bottom = Math.min(box.bottom, edge.bottom);
      }
      if (box.right - box.left > 1 && box.bottom - box.top > 4) boxes.push(box);
    }
  }
  // Lines may touch: a box is higher than its letters.
  const isLeft = (a, b) => a.right < b.left + 1;
  const isAbove = (a, b) => a.bottom < b.top + 4;
  // The boxes of one text overlap where it ends in "…".
  const isApart = (a, b) => a.node === b.node || isLeft(a, b) || isLeft(b, a) || isAbove(a, b) || isAbove(b, a);
  const pairs = boxes.flatMap((a, i) => boxes.slice(i + 1).filter((b) => !isApart(a, b)).map((b) => [a, b]));
  const start = ({node}) => node.data.trim().slice(0, 40);
  return pairs.map(([a, b]) => `text overlaps: ${start(a)} | ${start(b)}`);
}
"""
# axe does not look at hidden controls, but other tools and some screen readers do.
_UNNAMED = """
[...document.querySelectorAll("input:not([type=hidden]), select, textarea")]
  .filter((one) => one.labels.length === 0 && !one.ariaLabel && !one.hasAttribute("aria-labelledby"))
  .map((one) => `no name: ${one.outerHTML.slice(0, 150)}`)
"""


def chromium() -> str:
    """The path of Chromium. Skips the test if there is none, unless QUARTERDECK_TEST_BROWSER=required."""
    given = os.environ.get("QUARTERDECK_TEST_CHROMIUM")
    # The headless shell first: it takes less than two thirds of the processor time.
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    found = given or next(filter(None, map(shutil.which, names)), None)
    if found is None:
        _skip("no Chromium found; `make browser` installs one, or set QUARTERDECK_TEST_CHROMIUM to its path")
    return found


def _skip(reason: str) -> NoReturn:
    if os.environ.get("QUARTERDECK_TEST_BROWSER") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


@asynccontextmanager
async def launch_browser(executable: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        # Chromium's sandbox does not work for root in a container.
        arguments = ["--no-sandbox", f"--host-resolver-rules=MAP {HOST_WITHOUT_TLS} 127.0.0.1"]
        browser = await playwright.chromium.launch(executable_path=executable, args=arguments)
        try:
            yield browser
        finally:
            await browser.close()


class ConsolePage:
    """A tab with the console."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.errors: list[str] = []
        self._is_interrupted = False
        page.on("pageerror", lambda error: self.errors.append(f"uncaught: {error}"))
        page.on("console", lambda message: self._on_message(message.type, message.text))
        page.on("request", lambda request: self._on_request(request.url))
        page.on("requestfailed", lambda request: self._on_failure(request.url, request.failure))

    def _on_message(self, kind: str, text: str) -> None:
        # Chromium logs the first for every 4xx response and the second for every page without TLS.
        expected = ("Failed to load resource", "The Cross-Origin-Opener-Policy header has been ignored")
        if kind == "error" and not text.startswith(expected):
            self.errors.append(text)

    def _on_request(self, url: str) -> None:
        if not url.startswith((self.url, "blob:", "data:")):
            self.errors.append(f"request to another host: {url}")

    def _on_failure(self, url: str, reason: str | None) -> None:
        if "/assets/" not in url or reason == "net::ERR_ABORTED":
            return
        if reason == "net::ERR_NETWORK_CHANGED":
            self._is_interrupted = True
        else:
            self.errors.append(f"not loaded: {url}: {reason}")

    async def open(self, path: str = "/") -> None:
        await self.page.goto(f"{self.url}/#{path}")
        # Chromium stops all requests when a network interface of the machine comes or goes, as those of containers do.
        # The console repeats its requests to the API, but cannot load a part of itself again.
        while self._is_interrupted:
            self._is_interrupted = False
            await self.page.reload()

    async def load(self, path: str) -> None:
        """Navigate to another page and wait until it has loaded all its data."""
        await self.page.evaluate("document.querySelector('main')?.setAttribute('data-left', '')")
        await self.open(path)
        await expect(self.page.locator("main:not([data-left], [aria-busy])")).to_be_visible()
        await expect(self.page.get_by_role("status").filter(has_text="Loading ")).to_have_count(0)

    async def sign_in(self, secret: str, path: str = "/") -> None:
        """With a key or a session token."""
        await self.open(path)
        await self.page.get_by_role("button", name="Use an API key").click()
        await self.page.get_by_label("API key or session token").fill(secret)
        await self.page.get_by_role("button", name="Sign in", exact=True).click()
        await expect(self.page.get_by_role("button", name="Sign out")).to_be_visible()

    async def sign_in_person(self, email: str, password: str, path: str = "/") -> None:
        await self.open(path)
        await self.page.get_by_label("Email").fill(email)
        await self.page.get_by_label("Password").fill(password)
        await self.page.get_by_role("button", name="Sign in", exact=True).click()
        await expect(self.account).to_be_visible()

    @property
    def account(self) -> Locator:
        """The button of the account menu."""
        return self.page.get_by_role("button", name="Account of")

    async def heading(self, text: str) -> None:
        await expect(self.page.get_by_role("heading", level=1, name=text)).to_be_visible()

    async def resize(self, width: int) -> None:
        await self.page.set_viewport_size({"width": width, "height": 800})
        # Media queries are evaluated with the next frame.
        await self.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    async def accessibility_problems(self, *, contrast: bool = True) -> list[str]:
        """The violations that axe-core finds on the page or in its open dialog, and form controls without a name.
        Checking the contrast of colours takes most of the time."""
        if not AXE.exists():
            _skip("no axe-core found; `make browser` installs it")
        if not await self.page.evaluate("'axe' in window"):
            await self.page.evaluate(AXE.read_text())
        # Only the violations: the full result of a long page takes minutes to transfer.
        run = """(rules) => {
          const part = document.querySelector("dialog[open]") ?? document;
          return axe.run(part, {resultTypes: ["violations"], rules}).then((found) => found.violations);
        }"""
        # The Markdown of an answer may skip levels of headings.
        rules = {"color-contrast": {"enabled": contrast}, "heading-order": {"enabled": False}}
        violations: list[dict[str, Any]] = await self.page.evaluate(run, rules)
        unnamed: list[str] = await self.page.evaluate(_UNNAMED)
        return unnamed + [
            f"{one['id']}: {one['help']}: {one['nodes'][0]['html']} {one['nodes'][0].get('failureSummary')}"
            for one in violations
        ]

    async def overlaps(self) -> list[str]:
        """Texts that cover each other."""
        found: list[str] = await self.page.evaluate(_OVERLAPS)
        return found

    async def overflow(self) -> int:
        """By how many pixels the page is wider than the screen."""
        width: int = await self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return width


@asynccontextmanager
async def open_console(
    browser: Browser, url: str, *, width: int = WIDE, height: int = 900, scheme: Scheme = "light", touch: bool = False
) -> AsyncIterator[ConsolePage]:
    """A tab. It shares with others what the browser has loaded of the console, and nothing else."""
    context = _idle.pop((browser, touch), None) or await _new_context(browser, touch)
    if HOST_WITHOUT_TLS not in url:
        await context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    page = await context.new_page()
    await page.set_viewport_size({"width": width, "height": height})
    await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    console = ConsolePage(page, url)
    try:
        yield console
        await _forget(context, page, url)
        _idle[browser, touch] = context
    except BaseException as error:
        error.add_note(f"Errors of the page: {console.errors}")
        await context.close()
        raise
    # With a message, because pytest does not rewrite assertions of this module.
    assert console.errors == [], console.errors


# Loading the console into a new context takes twice the processor time.
_idle: dict[tuple[Browser, bool], BrowserContext] = {}


async def _new_context(browser: Browser, touch: bool) -> BrowserContext:
    context = await browser.new_context(locale="en-GB", has_touch=touch)
    context.set_default_timeout(TIMEOUT_MS)
    return context


async def _forget(context: BrowserContext, page: Page, url: str) -> None:
    devtools = await context.new_cdp_session(page)
    stored = {"origin": url, "storageTypes": "cookies,local_storage,indexeddb,service_workers"}
    await devtools.send("Storage.clearDataForOrigin", stored)
    await context.set_offline(False)
    for tab in context.pages:
        await tab.close()
