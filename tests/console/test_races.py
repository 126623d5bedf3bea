"""Answers that come late, twice or not at all, and people who do not wait for them."""

import asyncio

import pytest
from playwright.async_api import Page, Route, expect

from quarterdeck.core.actors import Permission
from tests.console.browser import Visitor
from tests.world import World, bundle

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def held(page: Page, address: str, method: str = "GET") -> tuple[asyncio.Event, asyncio.Event]:
    """Requests to it wait. What is set when the first has come, and what lets them all go on."""
    came, let_go = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        if route.request.method == method:
            came.set()
            await let_go.wait()
        await route.fallback()

    await page.route(address, hold)
    return came, let_go


async def make_key(visitor: Visitor, label: str) -> None:
    await visitor.page.get_by_role("button", name="Create key").click()
    await visitor.page.get_by_label("Label").fill(label)
    await visitor.page.keyboard.press("Enter")


async def test_a_secret_stays_until_the_person_has_it(visitor: Visitor, world: World) -> None:
    page = visitor.page
    await visitor.sign_in(world.key, "/skills")
    await visitor.heading("Skills")
    await page.get_by_role("link", name="Keys").click()
    await make_key(visitor, "Precious")
    shown = page.get_by_role("dialog", name="Your new key")
    await expect(shown).to_be_visible()
    # Chromium asks a page once, and closes at the next press whatever it said.
    for _ in range(3):
        await page.keyboard.press("Escape")
    await expect(shown).to_be_visible()
    await page.go_back()
    await expect(page.locator("h1", has_text="Skills")).to_be_attached()
    await expect(page.get_by_text("Loading")).to_have_count(0)
    await expect(shown).to_be_visible()
    await world.execute("UPDATE api_keys SET revoked_at = now() WHERE workspace_id = %s", world.workspace_id)
    await page.go_forward()
    await expect(page.locator("h1", has_text="Sign in again")).to_be_attached()
    await expect(shown.locator("code").first).to_contain_text("qd_live_")
    await page.get_by_role("button", name="I have it").click()
    await visitor.heading("Sign in again")
    await expect(shown).to_have_count(0)


async def test_who_closes_a_form_too_soon_still_gets_the_secret(visitor: Visitor, world: World) -> None:
    page = visitor.page
    await visitor.sign_in(world.key, "/keys")
    came, let_go = await held(page, "**/v1/api-keys", "POST")
    await make_key(visitor, "Hasty")
    await came.wait()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    let_go.set()
    await expect(page.get_by_role("dialog", name="Your new key")).to_be_visible()
    await page.get_by_role("button", name="I have it").click()
    await expect(page.get_by_role("row", name="Hasty")).to_be_focused()
    assert await world.fetch("SELECT count(*) FROM api_keys WHERE label = 'Hasty'") == [(1,)]


async def test_a_form_opens_once_and_only_where_it_was_asked_for(visitor: Visitor, world: World) -> None:
    page = visitor.page
    await visitor.sign_in(world.key, "/keys")
    create = page.get_by_role("button", name="Create key")
    came, let_go = await held(page, "**/v1/workspace")
    await create.dblclick()
    await came.wait()
    let_go.set()
    await expect(page.get_by_role("dialog")).to_have_count(1)
    await page.keyboard.press("Escape")
    await expect(create).to_be_focused()
    came.clear()
    let_go.clear()
    await create.click()
    await came.wait()
    await page.get_by_role("link", name="Workspace").click()
    await visitor.heading("Workspace")
    let_go.set()
    await expect(page.get_by_text("You are signed in with")).to_be_visible()
    await expect(page.get_by_role("status").filter(has_text="Loading ")).to_have_count(0)
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_a_late_refusal_of_the_old_key_does_not_sign_out_the_new_one(visitor: Visitor, world: World) -> None:
    page = visitor.page
    skill_id = await world.new_skill()
    assert (await world.push(skill_id, bundle())).status_code == 201
    old, new = await world.new_key(label="Old"), await world.new_key(label="New")
    await visitor.sign_in(old, f"/skills/{skill_id}/versions/1")
    came, let_go = await held(page, "**/bundle")
    await page.get_by_role("button", name="Download bundle").click()
    await came.wait()
    # In this order: what the page still asks for must not be refused before.
    await page.get_by_role("button", name="Sign out").click()
    await visitor.heading("Sign in")
    await world.execute("UPDATE api_keys SET revoked_at = now() WHERE label = 'Old'")
    await page.get_by_label("API key or session token").fill(new)
    await page.keyboard.press("Enter")
    await expect(page.locator(".who")).to_contain_text("New")
    async with page.expect_response("**/bundle") as late:
        let_go.set()
    assert (await late.value).status == 401
    await page.get_by_role("link", name="Keys").click()
    await visitor.heading("API keys")


async def test_the_back_button_does_not_bring_back_who_signed_out(visitor: Visitor, world: World) -> None:
    page = visitor.page
    await visitor.sign_in(world.key, "/keys")
    await visitor.heading("API keys")
    # As a page is that was kept while another of the tab signed out; Playwright turns the browser's own keeping off.
    brought_back = "dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))"
    await page.evaluate(brought_back)
    await visitor.heading("API keys")
    await page.evaluate(f"sessionStorage.clear(); {brought_back}")
    await visitor.heading("Sign in")
    await expect(page.get_by_text("API keys")).to_have_count(0)


async def test_a_key_that_may_not_read_is_told_which_permission_it_lacks(visitor: Visitor, world: World) -> None:
    await visitor.sign_in(await world.new_key(Permission.SESSION_MANAGE), "/")
    for path in ("/sessions", "/skills", "/keys", "/activity", "/audit", "/workspace"):
        await visitor.settled(path)
        await expect(visitor.page.get_by_role("heading", name="This key does not show")).to_be_visible()
    await expect(visitor.page.get_by_role("alert")).to_have_count(0)


async def test_an_answer_that_breaks_off_is_asked_for_again(visitor: Visitor, world: World) -> None:
    page = visitor.page
    asked = 0

    async def cut(route: Route) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            await route.fulfill(body='{"items": [', content_type="application/json")
        else:
            await route.fallback()

    await page.route("**/v1/api-keys?*", cut)
    await visitor.sign_in(world.key, "/keys")
    await expect(page.get_by_role("row", name="signed in")).to_be_visible()


async def test_a_long_pause_that_the_server_asks_for_is_told(visitor: Visitor, world: World) -> None:
    page = visitor.page
    error = {"error": {"code": "too_many_requests", "message": "Too many requests."}}

    async def busy(route: Route) -> None:
        await route.fulfill(status=429, json=error, headers={"Retry-After": "3600", "X-Request-Id": "r-1"})

    await page.route("**/v1/audit-events?*", busy)
    await visitor.sign_in(world.key, "/audit")
    await expect(page.get_by_role("alert")).to_contain_text("Too many requests.")
    await expect(page.get_by_role("alert")).to_contain_text("r-1")
    await page.unroute("**/v1/audit-events?*")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_role("alert")).to_have_count(0)


async def test_scripts_that_do_not_come_leave_a_word(visitor: Visitor) -> None:
    """The page of one release, and behind the same address a server of another that has none of its files."""

    async def missing(route: Route) -> None:
        await route.fulfill(status=404, json={"error": {"code": "not_found", "message": "No such path."}})

    await visitor.page.route("**/assets/**", missing)
    await visitor.open()
    await expect(visitor.page.get_by_text("load the page again")).to_be_visible()
    await visitor.page.unroute("**/assets/**")
    await visitor.page.reload()
    await visitor.heading("Sign in")
    await expect(visitor.page.get_by_text("load the page again")).to_have_count(0)


async def test_a_key_with_characters_that_no_key_has(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.open()
    await page.get_by_label("API key or session token").fill("qd_schlüssel🗝")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("neither a key nor a token")
    assert await page.evaluate("sessionStorage.length") == 0


async def test_an_address_asks_for_nothing_but_its_own_page(visitor: Visitor, world: World) -> None:
    page = visitor.page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await visitor.sign_in(world.key, "/workspace")
    await visitor.heading("Workspace")
    asked.clear()
    for path in ("/sessions/..%2Fapi-keys", "/skills/..%2Fapi-keys", "/skills/x/versions/..%2F..%2F..%2Fapi-keys"):
        await visitor.settled(path)
        await visitor.heading("This page could not be shown")
    for path in ("/sessions/%", "/sessions/%E0%A4%A", "//elsewhere.example/", "x" * 50_000):
        await visitor.settled(path)
        await visitor.heading("No such page")
    assert not [url for url in asked if url.endswith("/v1/api-keys") or "/v1/api-keys/" in url]


async def test_names_that_one_cannot_see(visitor: Visitor, world: World) -> None:
    """They stand in links and on buttons, and in questions whether to delete something."""
    page = visitor.page
    for title in (" ", "\u200b", "Invoices\u200b", "\u3164"):
        assert (await world.post("/v1/sessions", {"title": title})).status_code == 201
    await world.new_key(Permission.WORKSPACE_READ, label="\u2003")
    await visitor.sign_in(world.key, "/sessions")
    for name in ("Untitled session", "⟨U+200B⟩", "Invoices⟨U+200B⟩", "⟨U+3164⟩"):
        await expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()
    await page.get_by_role("link", name="Keys").click()
    await page.get_by_role("button", name="Revoke ⟨blank⟩").click()
    await expect(page.get_by_role("dialog", name="Revoke “⟨blank⟩”?")).to_be_visible()
