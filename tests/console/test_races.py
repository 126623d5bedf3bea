"""Late, duplicate, truncated and missing responses, and users who do not wait for them."""

import asyncio

import pytest
from playwright.async_api import Page, Route, expect

from quarterdeck.core.actors import Permission
from tests.console.browser import ConsolePage
from tests.world import World, bundle

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]


async def hold_requests(page: Page, address: str, method: str = "GET") -> tuple[asyncio.Event, asyncio.Event]:
    """Hold requests to an address. The first event is set when one arrives; setting the second releases them."""
    arrived, release = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        if route.request.method == method:
            arrived.set()
            await release.wait()
        await route.fallback()

    await page.route(address, hold)
    return arrived, release


async def create_key(console: ConsolePage, label: str) -> None:
    await console.page.get_by_role("button", name="Create key").click()
    await console.page.get_by_label("Label").fill(label)
    await console.page.keyboard.press("Enter")


async def test_secret_dialog_stays_until_it_is_confirmed(console: ConsolePage, world: World) -> None:
    page = console.page
    await console.sign_in(world.key, "/skills")
    await console.heading("Skills")
    await page.get_by_role("link", name="Keys").click()
    await create_key(console, "Precious")
    shown = page.get_by_role("dialog", name="Your new key")
    await expect(shown).to_be_visible()
    # Chromium lets a page prevent only the first Escape.
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
    await page.get_by_role("button", name="I've saved this key").click()
    await console.heading("Sign in again")
    await expect(shown).to_have_count(0)


async def test_secret_is_shown_if_the_form_was_closed_early(console: ConsolePage, world: World) -> None:
    page = console.page
    await console.sign_in(world.key, "/keys")
    arrived, release = await hold_requests(page, "**/v1/api-keys", "POST")
    await create_key(console, "Hasty")
    await arrived.wait()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    release.set()
    await expect(page.get_by_role("dialog", name="Your new key")).to_be_visible()
    await page.get_by_role("button", name="I've saved this key").click()
    await expect(page.get_by_role("row", name="Hasty")).to_be_focused()
    assert await world.fetch("SELECT count(*) FROM api_keys WHERE label = 'Hasty'") == [(1,)]


async def test_form_opens_once_and_only_on_its_page(console: ConsolePage, world: World) -> None:
    page = console.page
    await console.sign_in(world.key, "/keys")
    create = page.get_by_role("button", name="Create key")
    arrived, release = await hold_requests(page, "**/v1/workspace")
    await create.dblclick()
    await arrived.wait()
    release.set()
    await expect(page.get_by_role("dialog")).to_have_count(1)
    await page.keyboard.press("Escape")
    await expect(create).to_be_focused()
    arrived.clear()
    release.clear()
    await create.click()
    await arrived.wait()
    await page.get_by_role("link", name="Workspace").click()
    await console.heading("Workspace")
    release.set()
    await expect(page.get_by_text("Your key")).to_be_visible()
    await expect(page.get_by_role("status").filter(has_text="Loading ")).to_have_count(0)
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_late_401_of_the_old_key_does_not_sign_out_the_new_one(console: ConsolePage, world: World) -> None:
    page = console.page
    skill_id = await world.new_skill()
    assert (await world.push(skill_id, bundle())).status_code == 201
    old, new = await world.new_key(label="Old"), await world.new_key(label="New")
    await console.sign_in(old, f"/skills/{skill_id}/versions/1")
    arrived, release = await hold_requests(page, "**/bundle")
    await page.get_by_role("button", name="Download bundle").click()
    await arrived.wait()
    # Revoked after signing out: other requests of the page must not fail first.
    await page.get_by_role("button", name="Sign out").click()
    await console.heading("Sign in")
    await world.execute("UPDATE api_keys SET revoked_at = now() WHERE label = 'Old'")
    await page.get_by_role("button", name="Use an API key").click()
    await page.get_by_label("API key or session token").fill(new)
    await page.keyboard.press("Enter")
    await expect(page.locator(".account")).to_contain_text("New")
    async with page.expect_response("**/bundle") as late:
        release.set()
    assert (await late.value).status == 401
    await page.get_by_role("link", name="Keys").click()
    await console.heading("API keys")


async def test_back_button_after_signing_out(console: ConsolePage, world: World) -> None:
    page = console.page
    await console.sign_in(world.key, "/keys")
    await console.heading("API keys")
    # Simulated: Playwright disables the back/forward cache.
    restored = "dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))"
    await page.evaluate(restored)
    await console.heading("API keys")
    await page.evaluate(f"sessionStorage.clear(); {restored}")
    await console.heading("Sign in")
    await expect(page.get_by_text("API keys")).to_have_count(0)


async def test_pages_without_read_permission(console: ConsolePage, world: World) -> None:
    await console.sign_in(await world.new_key(Permission.SESSION_MANAGE), "/")
    for path in ("/sessions", "/skills", "/keys", "/activity", "/audit", "/workspace"):
        await console.load(path)
        await expect(console.page.get_by_role("heading", name="No access to")).to_be_visible()
    await expect(console.page.get_by_role("alert")).to_have_count(0)


async def test_truncated_response_is_retried(console: ConsolePage, world: World) -> None:
    page = console.page
    asked = 0

    async def cut(route: Route) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            await route.fulfill(body='{"items": [', content_type="application/json")
        else:
            await route.fallback()

    await page.route("**/v1/api-keys?*", cut)
    await console.sign_in(world.key, "/keys")
    await expect(page.get_by_role("row", name="This key")).to_be_visible()


async def test_long_retry_after_is_an_error(console: ConsolePage, world: World) -> None:
    page = console.page
    error = {"error": {"code": "too_many_requests", "message": "Too many requests."}}

    async def busy(route: Route) -> None:
        await route.fulfill(status=429, json=error, headers={"Retry-After": "3600", "X-Request-Id": "r-1"})

    await page.route("**/v1/audit-events?*", busy)
    await console.sign_in(world.key, "/audit")
    await expect(page.get_by_role("alert")).to_contain_text("Too many requests.")
    await expect(page.get_by_role("alert")).to_contain_text("r-1")
    await page.unroute("**/v1/audit-events?*")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_role("alert")).to_have_count(0)


async def test_missing_scripts_show_a_message(console: ConsolePage) -> None:
    """As during an update: the page is of one release, the server of another."""

    async def missing(route: Route) -> None:
        await route.fulfill(status=404, json={"error": {"code": "not_found", "message": "No such path."}})

    await console.page.route("**/assets/**", missing)
    await console.open()
    await expect(console.page.get_by_text("reload the page")).to_be_visible()
    await console.page.unroute("**/assets/**")
    await console.page.reload()
    await console.heading("Sign in")
    await expect(console.page.get_by_text("reload the page")).to_have_count(0)


async def test_key_with_characters_that_headers_cannot_contain(console: ConsolePage) -> None:
    page = console.page
    await console.open()
    await page.get_by_role("button", name="Use an API key").click()
    await page.get_by_label("API key or session token").fill("qd_schlüssel🗝")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("This key is invalid, expired or revoked.")
    assert await page.evaluate("sessionStorage.length") == 0


async def test_crafted_addresses_send_no_other_requests(console: ConsolePage, world: World) -> None:
    page = console.page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await console.sign_in(world.key, "/workspace")
    await console.heading("Workspace")
    asked.clear()
    for path in ("/sessions/..%2Fapi-keys", "/skills/..%2Fapi-keys", "/skills/x/versions/..%2F..%2F..%2Fapi-keys"):
        await console.load(path)
        await expect(page.get_by_role("alert")).to_be_visible()
    for path in ("/sessions/%", "/sessions/%E0%A4%A", "//elsewhere.example/", "x" * 50_000):
        await console.load(path)
        await console.heading("Page not found")
    assert not [url for url in asked if url.endswith("/v1/api-keys") or "/v1/api-keys/" in url]


async def test_invisible_names(console: ConsolePage, world: World) -> None:
    page = console.page
    for title in (" ", "\u200b", "Invoices\u200b", "\u3164"):
        assert (await world.post("/v1/sessions", {"title": title})).status_code == 201
    await world.new_key(Permission.WORKSPACE_READ, label="\u2003")
    await console.sign_in(world.key, "/sessions")
    for name in ("Untitled session", "⟨U+200B⟩", "Invoices⟨U+200B⟩", "⟨U+3164⟩"):
        await expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()
    await page.get_by_role("link", name="Keys").click()
    await page.get_by_role("button", name="Revoke ⟨blank⟩").click()
    await expect(page.get_by_role("dialog", name="Revoke “⟨blank⟩”?")).to_be_visible()
