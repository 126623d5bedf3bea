"""A session in the browser: conversation, steering, cancelling, sharing."""

import re
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from tests.console.browser import NARROW, ConsolePage, open_console
from tests.workers import check_log, log_of, started
from tests.world import Server, World

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("worker")]

# Streams an answer in 17 pieces, the first after 2.4 s, and stores it after 40 s.
SLOW_ANSWER = "demo: steps 0\ndemo: slow 40\n" + "word " * 60


def accepted(log: list[dict[str, Any]]) -> list[str]:
    return [entry["data"]["text"] for entry in log if entry["type"] == "input.accepted"]


async def test_conversation_by_keyboard_with_steering(console: ConsolePage, world: World) -> None:
    page = console.page
    session_id = await world.new_session()
    await console.sign_in(world.key, f"/sessions/{session_id}")
    await expect(page.get_by_role("heading", name="No messages yet")).to_be_visible()
    message = page.get_by_label("Message")
    await expect(message).to_be_focused()
    await page.keyboard.type("hello")
    # The run goes on until it is steered, however slow this test is.
    for line in ("demo: steps 99", "demo: slow 0.5"):
        await page.keyboard.press("Shift+Enter")
        await page.keyboard.type(line)
    await expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()
    await page.keyboard.press("Enter")
    await expect(message).to_have_value("")
    await expect(page.get_by_role("button", name="Send to current run")).to_be_visible()
    await expect(page.get_by_text("Started a run · Read at step 1", exact=True)).to_be_visible()
    await page.keyboard.type("be brief")
    for line in ("demo: steps 1", "demo: slow 0"):
        await page.keyboard.press("Shift+Enter")
        await page.keyboard.type(line)
    await page.keyboard.press("Enter")
    await expect(page.get_by_text(re.compile(r"^Sent to current run · Read at step \d+$"))).to_be_visible()
    await expect(page.get_by_text("✓ Completed")).to_be_visible()
    await expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()
    await expect(page.get_by_role("article", name="Input")).to_have_count(2)
    await expect(page.get_by_role("article", name="Answer").last).to_contain_text("be brief")
    await expect(page.get_by_role("img", name="steered 1 time, completed.")).to_be_visible()
    tool = page.locator("details", has_text="current_time").last
    await tool.locator("summary").focus()
    await page.keyboard.press("Enter")
    await expect(tool.get_by_text("UTC")).to_be_visible()
    log = await log_of(world, session_id)
    assert accepted(log) == ["hello\ndemo: steps 99\ndemo: slow 0.5", "be brief\ndemo: steps 1\ndemo: slow 0"]
    check_log(log)
    await expect(page.get_by_role("button", name="Copy session ID")).to_be_visible()
    await page.get_by_role("link", name="All sessions").click()
    await console.heading("Sessions")


@pytest.mark.long
async def test_cancelling_a_run_discards_unread_inputs(console: ConsolePage, world: World) -> None:
    page = console.page
    session_id = await world.new_session()
    await console.sign_in(world.key, f"/sessions/{session_id}")
    message = page.get_by_label("Message")
    assert await page.get_by_role("button", name="Cancel run").count() == 0
    await message.fill(SLOW_ANSWER)
    await page.get_by_role("button", name="Send", exact=True).click()
    await expect(page.get_by_text("Started a run · Read at step 1")).to_be_visible()
    # The answer is streamed before it is stored.
    await expect(page.get_by_role("article", name="Answer")).to_contain_text("Demo model: I")
    assert not [entry for entry in await log_of(world, session_id) if entry["type"] == "message"]
    await message.fill("never read")
    await page.get_by_role("button", name="Send to current run").click()
    await expect(page.get_by_text("Queued for the current run", exact=True)).to_be_visible()
    await expect(page.get_by_role("status").filter(has_text="Sent to current run.")).to_be_attached()
    await world.submit(session_id, "by somebody else")
    await expect(page.get_by_text("Sent from another client · Queued for the current run")).to_be_visible()
    await message.fill("half a li")
    await page.get_by_role("button", name="Cancel run").click()
    await expect(page.get_by_text("■ Cancelled")).to_be_visible()
    await expect(page.get_by_text("Stopped; partial text not saved")).to_be_visible()
    await expect(page.locator(".stage", has_text="Discarded: The run was cancelled.")).to_have_count(2)
    await expect(message).to_have_value("half a li")
    await expect(message).to_be_focused()
    await expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()
    await expect(page.get_by_role("img", name="steered 2 times, cancelled.")).to_be_visible()


@pytest.mark.long
async def test_session_token_is_shared_used_and_revoked(
    console: ConsolePage, world: World, browser: Browser, server: Server
) -> None:
    page = console.page
    session_id = await world.new_session()
    await console.sign_in(world.key, f"/sessions/{session_id}")
    await page.get_by_role("button", name="Share").click()
    dialog = page.get_by_role("dialog", name="Share this session")
    await expect(dialog.get_by_text("No active tokens")).to_be_visible()
    await dialog.get_by_label("Expires after").select_option("30 days")
    await dialog.get_by_role("button", name="Create token").click()
    copy = dialog.get_by_role("button", name="Copy token")
    await expect(copy).to_be_focused()
    await copy.click()
    await expect(dialog.get_by_text("Copied")).to_be_visible()
    token: str = await page.evaluate("navigator.clipboard.readText()")
    assert token.startswith("qds_")
    assert await console.accessibility_problems() == []
    async with open_console(browser, server.url, width=NARROW, scheme="dark") as guest:
        await guest.sign_in(token, "/keys")
        await guest.heading("Untitled session")
        assert await guest.page.get_by_role("navigation").count() == 0
        assert await guest.page.get_by_role("button", name="Share").count() == 0
        await guest.page.get_by_label("Message").fill("demo: slow 60")
        await guest.page.get_by_role("button", name="Send", exact=True).click()
        await expect(guest.page.get_by_text("Started a run · Read at step 1")).to_be_visible()
        await guest.page.get_by_role("button", name="Cancel run").click()
        await expect(guest.page.get_by_text("■ Cancelled")).to_be_visible()
        assert await guest.accessibility_problems() == []
        assert await guest.overflow() <= 0
        await dialog.get_by_role("button", name="Revoke qds_").click()
        sure = page.get_by_role("dialog", name="Revoke qds_")
        await sure.get_by_role("button", name="Revoke token").click()
        await expect(dialog.get_by_text("No active tokens")).to_be_visible()
        await guest.heading("Sign in again")
    await dialog.get_by_role("button", name="Close").click()
    await expect(page.get_by_role("button", name="Share")).to_be_focused()
    await expect(page.get_by_text("Sent from another client · Started a run · Read")).to_be_visible()


@pytest.mark.long
async def test_opening_a_session_shows_its_current_run(console: ConsolePage, world: World) -> None:
    session_id = await world.new_session()
    await world.submit(session_id, "demo: slow 60")
    await started(world, session_id)
    await console.sign_in(world.key, f"/sessions/{session_id}")
    await expect(console.page.get_by_role("button", name="Send to current run")).to_be_visible()
    await expect(console.page.get_by_role("img", name="running now.")).to_be_visible()
    await expect(console.page.get_by_text("Started a run · Read at step 1")).to_be_visible()
    await console.page.get_by_role("button", name="Cancel run").click()
    await expect(console.page.get_by_role("button", name="Send", exact=True)).to_be_visible()
