"""Checks for every page: accessibility, horizontal scrolling, keyboard navigation, content security policy."""

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.console.browser import NARROW, WIDE, ConsolePage, Scheme, open_console
from tests.console.sample_workspace import SampleWorkspace, create_sample
from tests.workers import Worker
from tests.world import Server, World

pytestmark = pytest.mark.asyncio(loop_scope="session")

# Marks the elements that receive the focus, and those that have no visible focus indicator.
WATCH_FOCUS = """
addEventListener("focusin", ({target}) => {
  target.dataset.reached = "";
  // The indicator may be on the form around a field, or on the label after a radio button.
  const around = [target.nextElementSibling, target.parentElement, target.closest("form, label")];
  const candidates = [target, ...around.filter(Boolean)];
  const isVisible = candidates.some((one) => getComputedStyle(one).outlineStyle !== "none");
  if (!isVisible && !target.matches("h1, main, body")) target.dataset.noOutline = "";
});
"""
# Radio buttons are left out: Tab stops at one of a group only.
FOCUSABLE = """
[...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")]
  .filter((one) => !one.disabled && one.type !== "radio" && one.tabIndex >= 0)
  .filter((one) => one.checkVisibility({visibilityProperty: true}))
"""
NOT_REACHED = f"{FOCUSABLE}.filter((one) => !('reached' in one.dataset)).map((one) => one.outerHTML.slice(0, 150))"
NO_OUTLINE = (
    "[...document.querySelectorAll('[data-no-outline]')].map((one) => `no outline: ${one.outerHTML.slice(0, 150)}`)"
)
# The page and the buttons to press one after the other; the last opens a dialog.
DIALOGS = [
    ("keys", "Create key"),
    ("keys", "Rotate Ada's browser"),
    ("keys", "Revoke Ada's browser"),
    ("sessions", "New session"),
    ("session", "Edit session"),
    ("session", "Share"),
    ("session", "More", "Rename…"),
    ("session", "More", "Archive…"),
    ("session", "More", "Delete…"),
    ("agent", "New session"),
    ("agent", "Archive"),
    ("mcp-servers", "Add MCP server"),
    ("mcp-server", "Delete"),
    ("credentials", "Create credential"),
    ("credentials", "Rotate Billing"),
    ("skills", "New skill"),
    ("skill", "Rename"),
    ("skill", "Archive"),
    ("skill", "Delete"),
    ("skill", "Roll back to version 1"),
    ("webhooks", "Create webhook"),
    ("workspace", "Edit retention"),
    ("webhook", "Edit"),
    ("webhook", "Rotate secret"),
    ("webhook", "Delete"),
    ("webhook", "Search"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def sample(server: Server, worker: Worker) -> AsyncIterator[SampleWorkspace]:
    async with httpx.AsyncClient(base_url=server.url, timeout=120) as http:
        yield await create_sample(server.database_url, http)


@pytest.mark.long
# A narrow dark page has the layout of the first and the colours of the last.
@pytest.mark.parametrize(("width", "scheme"), [(NARROW, "light"), (WIDE, "light"), (WIDE, "dark")])
async def test_pages_are_accessible_and_fit_the_screen(
    browser: Browser, server: Server, sample: SampleWorkspace, width: int, scheme: Scheme
) -> None:
    # A touch screen shows what appears with the pointer elsewhere, such as times.
    async with open_console(browser, server.url, width=width, scheme=scheme, touch=width == NARROW) as console:
        await console.open()
        await console.heading("Sign in")
        found = {"sign-in": await layout_problems(console)}
        await console.sign_in(sample.key, "/workspace")
        for name, path in sample.pages.items():
            await console.load(path)
            # The wide page has the same colours.
            found[name] = await layout_problems(console, contrast=width == WIDE)
    assert {name: problems for name, problems in found.items() if problems} == {}


@pytest.mark.long
async def test_dialogs_are_accessible_and_fit_the_screen(
    browser: Browser, server: Server, sample: SampleWorkspace
) -> None:
    found: dict[tuple[str, ...], list[str]] = {}
    async with open_console(browser, server.url, width=NARROW) as console:
        await console.sign_in(sample.key, "/workspace")
        for name, *buttons in DIALOGS:
            # Navigating to the current page does nothing.
            if not console.page.url.endswith(sample.pages[name]):
                await console.load(sample.pages[name])
            for button in buttons:
                await console.page.get_by_role("button", name=button, exact=True).click()
            await expect(console.page.get_by_role("dialog")).to_be_visible()
            await expect(console.page.get_by_role("status").filter(has_text="Loading ")).to_have_count(0)
            found[name, *buttons] = await layout_problems(console)
            await console.page.keyboard.press("Escape")
            await expect(console.page.get_by_role("dialog")).to_have_count(0)
    assert {dialog: problems for dialog, problems in found.items() if problems} == {}


async def layout_problems(console: ConsolePage, *, contrast: bool = True) -> list[str]:
    overflow = await console.overflow()
    too_wide = [f"{overflow} px wider than the screen"] if overflow > 0 else []
    return await console.accessibility_problems(contrast=contrast) + await console.overlaps() + too_wide


@pytest.mark.long
async def test_everything_is_reachable_by_keyboard(console: ConsolePage, sample: SampleWorkspace) -> None:
    page = console.page
    await console.sign_in(sample.key, "/workspace")
    await page.evaluate(WATCH_FOCUS)
    found: dict[str, list[str]] = {}
    for name, path in sample.pages.items():
        await console.load(path)
        await expect(page.locator("main :focus")).to_have_count(1)
        not_reached: list[str] = await page.evaluate(NOT_REACHED)
        # Some elements have several tab stops, such as day, month and year of a date.
        for _ in range(2 * len(not_reached) + 20):
            await page.keyboard.press("Tab")
            not_reached = await page.evaluate(NOT_REACHED)
            if not not_reached:
                break
        no_outline: list[str] = await page.evaluate(NO_OUTLINE)
        found[name] = not_reached + no_outline
    assert {name: elements for name, elements in found.items() if elements} == {}


@pytest.mark.long
async def test_skip_link_moves_the_focus_to_the_content(console: ConsolePage, world: World) -> None:
    page = console.page
    await console.sign_in(world.key, "/keys")
    await console.heading("API keys")
    # The focus is on the heading. Go back over the navigation to the first link of the page.
    for _ in range(await page.locator(".sidebar a, .sidebar button").count() + 1):
        await page.keyboard.press("Shift+Tab")
    await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    await expect(page.get_by_role("link", name="Skip to content")).to_be_in_viewport()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("main")).to_be_focused()
    assert page.url.endswith("#/keys")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("button", name="Create key")).to_be_focused()


# Directive of the policy: injections that it must block.
INJECTIONS = {
    "require-trusted-types-for": [
        "document.body.innerHTML = '<img src=x onerror=\"window.ran = 1\">'",
        "document.body.setAttribute('onclick', 'window.ran = 1')",
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}))",
        "document.body.append(Object.assign(document.createElement('script'), {src: '/planted.js'}))",
        "{const one = document.createElement('script'); one.append('window.ran = 1'); document.body.append(one)}",
    ],
    "style-src-attr": ["document.body.setAttribute('style', 'display: none')"],
    "img-src": ["new Image().src = 'https://elsewhere.example/pixel.png'"],
    "connect-src": ["fetch('https://elsewhere.example/').catch(() => {})"],
}
VIOLATION = """
() => new Promise((done) => {
  document.addEventListener("securitypolicyviolation", (event) => done(event.effectiveDirective), {once: true});
  try { INJECTION; } catch (error) { if (!(error instanceof TypeError)) throw error; }
})
"""


@pytest.mark.long
async def test_injected_scripts_do_not_run(console: ConsolePage, world: World) -> None:
    page = console.page
    await console.sign_in(world.key, "/keys")
    await console.heading("API keys")
    for directive, injections in INJECTIONS.items():
        for injection in injections:
            assert await page.evaluate(VIOLATION.replace("INJECTION", injection)) == directive, injection
    assert await page.evaluate("window.ran") is None
    # Chromium logs each violation as an error.
    assert len(console.errors) >= sum(map(len, INJECTIONS.values()))
    console.errors.clear()
