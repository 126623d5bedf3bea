"""Signing in and out."""

import pytest
from playwright.async_api import Browser, expect

from tests.console.browser import HOST_WITHOUT_TLS, ConsolePage, open_console
from tests.world import Server, World

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.long
async def test_key_is_kept_in_this_tab_only(console: ConsolePage, world: World) -> None:
    await console.sign_in(world.key, "/keys")
    await console.heading("API keys")
    assert world.key not in console.page.url
    await console.page.reload()
    await console.heading("API keys")
    assert await console.page.evaluate("localStorage.length") == 0
    assert await console.page.context.cookies() == []
    other = await console.page.context.new_page()
    await other.goto(console.url)
    await expect(other.get_by_role("heading", name="Sign in")).to_be_visible()


@pytest.mark.long
async def test_sign_out(console: ConsolePage, world: World) -> None:
    await console.sign_in(world.key)
    await console.page.get_by_role("button", name="Sign out").click()
    await console.heading("Sign in")
    await console.page.reload()
    await console.heading("Sign in")


async def test_wrong_key(console: ConsolePage) -> None:
    await console.open()
    await console.page.get_by_role("button", name="Use an API key").click()
    await console.page.get_by_label("API key or session token").fill("qd_test_wrong")
    await console.page.keyboard.press("Enter")
    alert = console.page.get_by_role("alert")
    await expect(alert).to_contain_text("This key is invalid, expired or revoked.")
    assert "Request" not in await alert.inner_text()
    await expect(console.page.get_by_label("API key or session token")).to_be_focused()


@pytest.mark.long
async def test_console_works_without_tls(browser: Browser, server: Server, world: World) -> None:
    async with open_console(browser, f"http://{HOST_WITHOUT_TLS}:{server.port}") as console:
        await console.sign_in(world.key, "/sessions")
        assert not await console.page.evaluate("isSecureContext")
        await console.page.get_by_role("button", name="New session").first.click()
        await console.page.get_by_role("dialog").get_by_label("Title").fill("Without TLS")
        await console.page.get_by_role("dialog").get_by_role("button", name="Create").click()
        await console.heading("Without TLS")
        await console.page.get_by_label("Message").fill("hello")
        await console.page.keyboard.press("Enter")
        await expect(console.page.get_by_text("Started a run · Queued")).to_be_visible()


async def test_session_token_opens_its_session_only(console: ConsolePage, world: World) -> None:
    session_id = await world.new_session()
    await console.sign_in(await world.new_token(session_id), "/keys")
    await expect(console.page.get_by_label("Message")).to_be_visible()
    assert await console.page.get_by_role("navigation").count() == 0


@pytest.mark.long
async def test_revoked_key_returns_to_the_page_after_signing_in_again(console: ConsolePage, world: World) -> None:
    await console.sign_in(world.key, "/keys")
    # Wait for the list, so that the request of the next page is the one that fails.
    await expect(console.page.get_by_role("row").filter(has_text="This key")).to_be_visible()
    await world.execute("UPDATE api_keys SET revoked_at = now() WHERE workspace_id = %s", world.workspace_id)
    await console.page.get_by_role("link", name="Skills").click()
    await console.heading("Sign in again")
    await console.page.get_by_label("API key or session token").fill(await world.new_key())
    await console.page.keyboard.press("Enter")
    await console.heading("Skills")
