"""Signing in, and what becomes of a credential."""

import pytest
from playwright.async_api import Browser, expect

from tests.console.browser import PLAIN_HOST, Visitor, visiting
from tests.world import Server, World

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_key_opens_the_workspace_and_stays_out_of_the_address(visitor: Visitor, world: World) -> None:
    await visitor.sign_in(world.key, "/keys")
    await visitor.heading("API keys")
    assert world.key not in visitor.page.url
    # It outlives a reload of the tab and is not known to another one.
    await visitor.page.reload()
    await visitor.heading("API keys")
    assert await visitor.page.evaluate("localStorage.length") == 0
    assert await visitor.page.context.cookies() == []
    other = await visitor.page.context.new_page()
    await other.goto(visitor.url)
    await expect(other.get_by_role("heading", name="Sign in")).to_be_visible()


async def test_signing_out_forgets_it(visitor: Visitor, world: World) -> None:
    await visitor.sign_in(world.key)
    await visitor.page.get_by_role("button", name="Sign out").click()
    await visitor.heading("Sign in")
    await visitor.page.reload()
    await visitor.heading("Sign in")


async def test_a_wrong_key_is_told_with_the_request_id(visitor: Visitor) -> None:
    await visitor.open()
    await visitor.page.get_by_label("API key or session token").fill("qd_test_wrong")
    await visitor.page.keyboard.press("Enter")
    alert = visitor.page.get_by_role("alert")
    await expect(alert).to_contain_text("Request ")
    await expect(visitor.page.get_by_label("API key or session token")).to_be_focused()


async def test_it_works_in_a_closed_network_without_tls(browser: Browser, server: Server, world: World) -> None:
    async with visiting(browser, f"http://{PLAIN_HOST}:{server.port}") as visitor:
        await visitor.sign_in(world.key, "/sessions")
        assert not await visitor.page.evaluate("isSecureContext")
        await visitor.page.get_by_role("button", name="New session").first.click()
        await visitor.page.get_by_role("dialog").get_by_label("Title").fill("In the cellar")
        await visitor.page.get_by_role("dialog").get_by_role("button", name="Create").click()
        await visitor.heading("In the cellar")
        await visitor.page.get_by_label("Your message").fill("hello")
        await visitor.page.keyboard.press("Enter")
        await expect(visitor.page.get_by_text("started a run", exact=False).first).to_be_visible()


async def test_a_session_token_opens_its_session_only(visitor: Visitor, world: World) -> None:
    session_id = await world.new_session()
    await visitor.sign_in(await world.new_token(session_id), "/keys")
    await expect(visitor.page.get_by_label("Your message")).to_be_visible()
    assert await visitor.page.get_by_role("navigation").count() == 0


async def test_a_key_that_is_revoked_meanwhile_asks_for_another_and_comes_back(visitor: Visitor, world: World) -> None:
    await visitor.sign_in(world.key, "/keys")
    # Its list has come: it must be the next page that is refused, not what this one still asks for.
    await expect(visitor.page.get_by_role("row").filter(has_text="signed in")).to_be_visible()
    await world.execute("UPDATE api_keys SET revoked_at = now() WHERE workspace_id = %s", world.workspace_id)
    await visitor.page.get_by_role("link", name="Skills").click()
    await visitor.heading("Sign in again")
    await visitor.page.get_by_label("API key or session token").fill(await world.new_key())
    await visitor.page.keyboard.press("Enter")
    await visitor.heading("Skills")
