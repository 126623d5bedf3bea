"""A session in the browser: conversation, steering, cancelling, sharing."""

import asyncio
import json
import re
from typing import Any

import pytest
from playwright.async_api import Browser, Page, Route, expect

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
async def test_message_typed_while_a_new_session_loads_is_kept(browser: Browser, server: Server, world: World) -> None:
    # A touch screen gets the focus in the message box only after "New session".
    async with open_console(browser, server.url, touch=True) as console:
        page = console.page
        may_load = asyncio.Event()

        async def hold(route: Route) -> None:
            await may_load.wait()
            await route.continue_()

        await console.sign_in(world.key, "/sessions")
        await page.route("**/v1/sessions/*", hold)
        await page.get_by_role("button", name="New session").first.focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("dialog").get_by_label("Title")).to_be_focused()
        await page.keyboard.press("Enter")
        message = page.get_by_label("Message")
        await expect(message).to_be_focused()
        await page.keyboard.type("hello")
        await page.keyboard.press("Enter")
        await page.keyboard.type("half a th")
        may_load.set()
        await expect(page.get_by_role("button", name="Share")).to_be_visible()
        await expect(message).to_be_focused()
        await page.keyboard.type("ought")
        await expect(message).to_have_value("half a thought")
        await expect(page.get_by_role("article", name="Input")).to_contain_text("hello")
        assert not page.url.endswith("?new")


async def _icon(page: Page) -> str:
    return str(await page.evaluate("document.querySelector('link[rel=icon]').href.split('/').at(-1)"))


@pytest.mark.long
async def test_tab_and_transcript_show_what_the_run_does(console: ConsolePage, world: World) -> None:
    page = console.page
    meter = {"name": "read_meter", "description": "Reads the meter.", "parameters": {"type": "object"}}
    waiting = (await world.post("/v1/sessions", {"title": "Readings", "client_tools": [meter]})).json()["id"]
    await world.submit(waiting, "call: read_meter {}")
    session_id = (await world.post("/v1/sessions", {"title": "Invoices"})).json()["id"]
    await world.submit(session_id, "demo: steps 2\ndemo: slow 60")
    await started(world, session_id)
    await console.sign_in(world.key, f"/sessions/{session_id}")
    await expect(page.get_by_text("Working…")).to_be_visible()
    await expect(page).to_have_title("▶ Invoices · Quarterdeck")
    assert await _icon(page) == "icon_working.svg"
    await page.get_by_role("button", name="Cancel run").click()
    await expect(page).to_have_title("Invoices · Quarterdeck")
    await expect(page.get_by_text("Working…")).to_be_hidden()
    assert await _icon(page) == "icon.svg"
    await console.load(f"/sessions/{waiting}")
    await expect(page).to_have_title("⏸ Readings · Quarterdeck")
    assert await _icon(page) == "icon_waiting.svg"
    await expect(page.get_by_text("Working…")).to_be_hidden()
    await console.load("/sessions")
    await expect(page).to_have_title("Sessions · Quarterdeck")
    assert await _icon(page) == "icon.svg"


@pytest.mark.long
async def test_retry_of_a_model_request_is_shown(console: ConsolePage, world: World) -> None:
    page = console.page
    session_id = await world.new_session()
    run_id = (await world.submit(session_id, "demo: slow 60")).json()["run_id"]
    await started(world, session_id)
    retry = {"run_id": run_id, "attempt": 2, "retry_in_seconds": 3.6, "reason": "The provider is overloaded."}

    async def send_retry(route: Route) -> None:
        text = {"run_id": run_id, "attempt": 1, "text": "Unfinished", "text_number": 1, "offset": 0}
        events = f"event: message.delta\ndata: {json.dumps(text)}\n\nevent: model.retry\ndata: {json.dumps(retry)}\n\n"
        await route.fulfill(content_type="text/event-stream", body=events)

    # The stream, whose address has no query.
    await page.route("**/events", send_retry, times=1)
    await console.sign_in(world.key, f"/sessions/{session_id}")
    shown = "The model request failed: The provider is overloaded. Trying again after 4 s (attempt 2)…"
    await expect(page.locator(".working")).to_have_text(shown)
    await expect(page.get_by_role("status").filter(has_text=shown)).to_be_attached()
    # The next attempt writes the answer from its beginning.
    await expect(page.get_by_text("Unfinished")).to_be_hidden()
    await page.get_by_role("button", name="Cancel run").click()
    await expect(page.locator(".working")).to_be_hidden()


@pytest.mark.long
async def test_title_that_the_first_input_gives_is_shown(console: ConsolePage, world: World) -> None:
    page = console.page
    session_id = await world.new_session()
    await console.sign_in(world.key, f"/sessions/{session_id}")
    await console.heading("Untitled session")
    await page.get_by_label("Message").fill("half a thought")
    await world.submit(session_id, "From the input\ndemo: steps 1")
    await console.heading("From the input")
    await expect(page).to_have_title(re.compile("From the input · Quarterdeck$"))
    await expect(page.get_by_label("Message")).to_be_focused()
    await expect(page.get_by_label("Message")).to_have_value("half a thought")


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
    await dialog.get_by_role("button", name="Create link").click()
    copy = dialog.get_by_role("button", name="Copy link with token")
    await expect(copy).to_be_focused()
    await copy.click()
    await expect(dialog.get_by_text("Copied")).to_be_visible()
    link: str = await page.evaluate("navigator.clipboard.readText()")
    path, token = link.split("?token=")
    assert path == f"{server.url}/#/sessions/{session_id}"
    assert token.startswith("qds_")
    assert await console.accessibility_problems() == []
    # It does not sign out who has a key, nor is it needed then.
    await page.evaluate("(link) => { location.href = link }", link)
    await expect(page).to_have_url(path)
    await expect(page.get_by_role("navigation", name="Main")).to_be_visible()
    await page.get_by_role("button", name="Share").click()
    async with open_console(browser, server.url, width=NARROW, scheme="dark") as guest:
        requested: list[str] = []
        guest.page.on("request", lambda request: requested.append(request.url))
        await guest.page.goto(link)
        await guest.heading("Untitled session")
        assert guest.page.url == path
        assert not [url for url in requested if token in url]
        # No entry of the history has the token either.
        await guest.page.evaluate("location.hash = '#/keys'")
        await guest.page.go_back()
        assert guest.page.url == path
        await guest.page.reload()
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
