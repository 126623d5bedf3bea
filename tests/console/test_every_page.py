"""What holds of every page, whatever is on it: no barrier that axe-core can find, no sideways scrolling, nothing that
the policy forbids, and a way through by keyboard. `Visitor` fails a test for errors and requests to elsewhere."""

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.console.browser import NARROW, WIDE, Scheme, Visitor, visiting
from tests.console.story import Story, told
from tests.workers import working
from tests.world import Server, World

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Marks what the keyboard gets to, and what it gets to without a sign of it.
WATCH = """
addEventListener("focusin", ({target}) => {
  target.dataset.reached = "";
  // A box may light up for what is in it, and a label for the radio button before it.
  const around = [target.nextElementSibling, target.parentElement, target.closest("form, label")];
  const signs = [target, ...around.filter(Boolean)];
  const seen = signs.some((one) => getComputedStyle(one).outlineStyle !== "none");
  if (!seen && !target.matches("h1, main, body")) target.dataset.unseen = "";
});
"""
# One of a group of radio buttons stands for all of them: arrows go to the others.
OPERABLE = """
[...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")]
  .filter((one) => !one.disabled && one.type !== "radio" && one.tabIndex >= 0)
  .filter((one) => one.checkVisibility({visibilityProperty: true}))
"""
LEFT = f"{OPERABLE}.filter((one) => !('reached' in one.dataset)).map((one) => one.outerHTML.slice(0, 150))"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def story(server: Server, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Story]:
    with working(server.database_url, tmp_path_factory.mktemp("worker")):
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            yield await told(server.database_url, http)


# Some fifty pages, one after another: a quarter of a minute, or minutes where much else runs.
@pytest.mark.timeout(400)
async def test_no_barriers_and_no_sideways_scrolling(browser: Browser, server: Server, story: Story) -> None:
    found: dict[str, list[str]] = {}
    schemes: tuple[Scheme, ...] = ("light", "dark")
    for width, scheme in ((width, scheme) for width in (NARROW, WIDE) for scheme in schemes):
        async with visiting(browser, server.url, width=width, scheme=scheme) as visitor:
            await visitor.open()
            await visitor.heading("Sign in")
            found[f"sign-in at {width} in {scheme}"] = await faults(visitor)
            await visitor.sign_in(story.key, "/workspace")
            for name, path in story.pages.items():
                await visitor.settled(path)
                found[f"{name} at {width} in {scheme}"] = await faults(visitor)
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


async def faults(visitor: Visitor) -> list[str]:
    overflow = await visitor.overflow()
    return await visitor.problems() + ([f"{overflow} px wider than the screen"] if overflow > 0 else [])


async def test_by_keyboard_one_gets_everywhere(visitor: Visitor, story: Story) -> None:
    page = visitor.page
    await visitor.sign_in(story.key, "/workspace")
    await page.evaluate(WATCH)
    missed: dict[str, list[str]] = {}
    for name, path in story.pages.items():
        await visitor.settled(path)
        await expect(page.locator("main :focus")).to_have_count(1)
        left: list[str] = await page.evaluate(LEFT)
        # Some have several stops: the day, month and year of a date.
        for _ in range(2 * len(left) + 20):
            await page.keyboard.press("Tab")
            left = await page.evaluate(LEFT)
            if not left:
                break
        dark: list[str] = await page.evaluate(
            "[...document.querySelectorAll('[data-unseen]')].map((one) => `no outline: ${one.outerHTML.slice(0, 150)}`)"
        )
        missed[name] = left + dark
    assert {name: ones for name, ones in missed.items() if ones} == {}


async def test_the_content_is_one_key_away(visitor: Visitor, world: World) -> None:
    page = visitor.page
    await visitor.sign_in(world.key, "/keys")
    await visitor.heading("API keys")
    # The focus is on the heading. Before it stand the places one can go, and first of all the way past them.
    for _ in range(await page.locator(".side a, .side button").count() + 1):
        await page.keyboard.press("Shift+Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_in_viewport()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("main")).to_be_focused()
    assert page.url.endswith("#/keys")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("button", name="Create key")).to_be_focused()


# Ways in, and what stands in each. Those that need a text to be read as code or markup fail at the assignment.
WAYS_IN = {
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
TRY = """
() => new Promise((done) => {
  document.addEventListener("securitypolicyviolation", (event) => done(event.effectiveDirective), {once: true});
  try { WAY; } catch (error) { if (!(error instanceof TypeError)) throw error; }
})
"""


async def test_a_script_that_gets_into_the_page_does_not_run(visitor: Visitor, world: World) -> None:
    page = visitor.page
    await visitor.sign_in(world.key, "/keys")
    await visitor.heading("API keys")
    for directive, ways in WAYS_IN.items():
        for way in ways:
            assert await page.evaluate(TRY.replace("WAY", way)) == directive, way
    assert await page.evaluate("window.ran") is None
    # Chromium writes each of them to the console, which is what fails a page that tries.
    assert len(visitor.wrongs) >= sum(map(len, WAYS_IN.values()))
    visitor.wrongs.clear()
