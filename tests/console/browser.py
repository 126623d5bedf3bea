"""A person with a browser: a real Chromium, one a test, that fails the test when a page breaks its own rules."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

AXE = Path(__file__).parent / "node_modules/axe-core/axe.min.js"
NARROW, WIDE = 360, 1280
# This machine under a name that a browser does not take for it: there a page without TLS has fewer rights.
PLAIN_HOST = "quarterdeck.example"
# Only a fault takes this long; a machine that does much else may take a good part of it.
PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)

Scheme = Literal["dark", "light"]


def chromium() -> str:
    """Where it is. Without one the test is skipped, unless CI says that it must not be."""
    named = os.environ.get("QUARTERDECK_TEST_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found and AXE.exists():
        return found
    if os.environ.get("QUARTERDECK_TEST_BROWSER") == "required":
        pytest.fail("no Chromium or no axe-core, and QUARTERDECK_TEST_BROWSER=required: run tests/console/install.sh")
    pytest.skip("no Chromium or no axe-core. `make browser` installs them (Debian, as root)")


@asynccontextmanager
async def running() -> AsyncIterator[Browser]:
    executable = chromium()
    async with async_playwright() as playwright:
        # Its sandbox needs rights that root in a container has not.
        arguments = ["--no-sandbox", f"--host-resolver-rules=MAP {PLAIN_HOST} 127.0.0.1"]
        browser = await playwright.chromium.launch(executable_path=executable, args=arguments)
        try:
            yield browser
        finally:
            await browser.close()


class Visitor:
    """Opens pages and notes what they do wrong."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.wrongs: list[str] = []
        page.on("pageerror", lambda error: self.wrongs.append(f"uncaught: {error}"))
        page.on("console", lambda message: self._heard(message.type, message.text))
        page.on("request", lambda request: self._asked(request.url))

    def _heard(self, kind: str, text: str) -> None:
        # Chromium says the first of every 4xx too; tests look at what the page makes of those. The second needs TLS.
        known = ("Failed to load resource", "The Cross-Origin-Opener-Policy header has been ignored")
        if kind == "error" and not text.startswith(known):
            self.wrongs.append(text)

    def _asked(self, url: str) -> None:
        if not url.startswith((self.url, "blob:", "data:")):
            self.wrongs.append(f"asked elsewhere: {url}")

    async def open(self, path: str = "/") -> None:
        await self.page.goto(f"{self.url}/#{path}")

    async def settled(self, path: str) -> None:
        """Goes from another page to this one and waits until all that it loads is there."""
        await self.page.evaluate("document.querySelector('main')?.setAttribute('data-left', '')")
        await self.open(path)
        await expect(self.page.locator("main:not([data-left], [aria-busy])")).to_be_visible()
        await expect(self.page.get_by_role("status").filter(has_text="Loading ")).to_have_count(0)

    async def sign_in(self, secret: str, path: str = "/") -> None:
        """By the form, as a person does."""
        await self.open(path)
        await self.page.get_by_label("API key or session token").fill(secret)
        await self.page.get_by_role("button", name="Sign in").click()
        await expect(self.page.get_by_role("button", name="Sign out")).to_be_visible()

    async def heading(self, text: str) -> None:
        await expect(self.page.get_by_role("heading", level=1, name=text)).to_be_visible()

    async def resize(self, width: int) -> None:
        await self.page.set_viewport_size({"width": width, "height": 800})
        # Rules that depend on the width come with the next picture.
        await self.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    async def problems(self) -> list[str]:
        """What axe-core finds serious or worse on the page as it is now."""
        if not await self.page.evaluate("'axe' in window"):
            await self.page.evaluate(AXE.read_text())
        # Only what is wrong: of a long page the rest takes minutes to bring here.
        run = "axe.run({ resultTypes: ['violations'] }).then((found) => found.violations)"
        found: list[dict[str, Any]] = await self.page.evaluate(run)
        return [
            f"{one['id']}: {one['help']}: {one['nodes'][0]['html']} {one['nodes'][0].get('failureSummary')}"
            for one in found
            if one["impact"] in ("serious", "critical")
        ]

    async def overflow(self) -> int:
        """By how many pixels the page is wider than the screen."""
        width: int = await self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return width


@asynccontextmanager
async def visiting(
    browser: Browser, url: str, *, width: int = WIDE, height: int = 900, scheme: Scheme = "light"
) -> AsyncIterator[Visitor]:
    context: BrowserContext = await browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce", locale="en-GB"
    )
    context.set_default_timeout(PATIENCE_MS)
    if PLAIN_HOST not in url:
        await context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    visitor = Visitor(await context.new_page(), url)
    try:
        yield visitor
    finally:
        await context.close()
    assert visitor.wrongs == []
