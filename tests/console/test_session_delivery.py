"""Inputs are neither lost nor duplicated if a connection fails, a key is revoked or the server restarts."""

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, Route, expect

from tests.console.browser import ConsolePage, open_console
from tests.workers import check_log, eventually, log_of, working
from tests.world import World, serving

# No worker on the shared server: runs stay queued.
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]


def accepted(log: list[dict[str, Any]]) -> list[str]:
    return [entry["data"]["text"] for entry in log if entry["type"] == "input.accepted"]


async def test_server_restart_loses_and_duplicates_nothing(browser: Browser, database_url: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        server = first.enter_context(serving(database_url, tmp_path))
        stack.enter_context(working(database_url, tmp_path))
        async with (
            httpx.AsyncClient(base_url=server.url, timeout=30) as http,
            open_console(browser, server.url) as console,
        ):
            world = await World.create(database_url, http)
            page = console.page
            session_id = await world.new_session()
            await console.sign_in(world.key, f"/sessions/{session_id}")
            message = page.get_by_label("Message")
            await message.fill("demo: slow 3")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("article", name="Answer")).to_contain_text("Demo model")
            first.close()
            lost = page.get_by_role("status").filter(has_text="Connection lost. Reconnecting…")
            await expect(lost).to_be_visible()
            for text in ("sent while it was away", "and one more"):
                await message.fill(text)
                await page.keyboard.press("Enter")
            await expect(page.get_by_text("Sending…")).to_have_count(2)
            # Shown for a few seconds only, so wait for it while the server starts.
            reconnected = expect(page.get_by_role("status").filter(has_text="Reconnected")).to_be_visible()
            restart = serving(database_url, tmp_path, SERVER_PORT=server.port)
            await asyncio.gather(reconnected, asyncio.to_thread(stack.enter_context, restart))
            await expect(page.get_by_text("Sending…")).to_have_count(0)
            await expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()
            log = await log_of(world, session_id)
            said = [entry["data"]["text"] for entry in log if entry["type"] == "message"]
            await expect(page.get_by_role("article", name="Answer")).to_have_count(len(said))
            inputs = page.get_by_role("article", name="Input")
            await expect(inputs).to_contain_text(["demo: slow 3", "sent while it was away", "and one more"])
            await expect(inputs).to_have_count(3)
    check_log(log)
    assert accepted(log) == ["demo: slow 3", "sent while it was away", "and one more"]


async def test_input_is_accepted_once_if_the_response_is_lost(console: ConsolePage, world: World) -> None:
    page = console.page
    session_id = await world.new_session()
    await console.sign_in(world.key, f"/sessions/{session_id}")
    keys: list[str | None] = []

    async def lose_first_response(route: Route) -> None:
        if route.request.method == "POST":
            keys.append(route.request.headers.get("idempotency-key"))
        if len(keys) == 1:
            await route.fetch()
            await route.abort("connectionreset")
        else:
            await route.continue_()

    await page.route("**/v1/sessions/*/events", lose_first_response)
    await page.get_by_label("Message").fill("only once")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Started a run · Queued")).to_be_visible()
    # Sent after the response to the first input, so the first was sent twice by then.
    await page.get_by_label("Message").fill("and then this")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Queued for the current run")).to_be_visible()
    assert len(keys) == 3
    assert keys[0] == keys[1] != keys[2]
    await expect(page.get_by_role("article", name="Input")).to_have_count(2)
    assert accepted(await log_of(world, session_id)) == ["only once", "and then this"]


async def test_a_run_by_batches(console: ConsolePage, world: World) -> None:
    session_id = await world.new_session()
    await console.sign_in(world.key, f"/sessions/{session_id}")
    page = console.page
    await page.get_by_label("Batch").check()
    await page.get_by_label("Message").fill("Sort them.")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Waiting for a batch")).to_be_visible()
    # Only the input that starts a run has a priority.
    await expect(page.get_by_label("Batch")).to_be_hidden()
    log = await log_of(world, session_id)
    assert [entry["data"].get("priority") for entry in log if entry["type"] == "input.accepted"] == ["batch"]


async def test_inputs_are_sent_after_leaving_the_page(console: ConsolePage, world: World) -> None:
    page = console.page
    session_id = await world.new_session()
    await console.sign_in(world.key, f"/sessions/{session_id}")
    await expect(page.get_by_label("Message")).to_be_visible()
    await page.context.set_offline(True)
    for text in ("on its way", "and the next"):
        await page.get_by_label("Message").fill(text)
        await page.keyboard.press("Enter")
    await expect(page.get_by_text("Sending…")).to_have_count(2)
    await page.get_by_role("link", name="Skills").click()
    await console.heading("Skills")
    await page.context.set_offline(False)
    await eventually(lambda: accepted_in(world, session_id, 2))
    await page.get_by_role("link", name="Sessions", exact=True).click()
    await page.get_by_role("link", name="Untitled session").click()
    # Not twice: the log already contains what the outbox has sent.
    await expect(page.get_by_role("article", name="Input")).to_have_count(2)
    await expect(page.locator(".stage")).to_have_text(["Started a run · Queued", "Queued for the current run"])
    assert accepted(await log_of(world, session_id)) == ["on its way", "and the next"]


async def accepted_in(world: World, session_id: str, count: int) -> bool:
    return len(accepted(await log_of(world, session_id))) == count


async def test_revoked_key_keeps_the_draft(console: ConsolePage, world: World) -> None:
    page = console.page
    session_id = await world.new_session()
    await console.sign_in(world.key, f"/sessions/{session_id}")
    message = page.get_by_label("Message")
    await message.fill("a long thought")
    await page.get_by_role("link", name="Sessions", exact=True).click()
    await page.get_by_role("link", name="Untitled session").click()
    await expect(message).to_have_value("a long thought")
    other = await world.new_key()
    await page.context.set_offline(True)
    await message.press("Enter")
    await expect(page.get_by_text("Sending…")).to_be_visible()
    await message.fill("and its end")
    await world.execute(
        "UPDATE api_keys SET revoked_at = now() WHERE label = 'test' AND workspace_id = %s AND id = "
        "(SELECT min(id::text)::uuid FROM api_keys WHERE workspace_id = %s)",
        world.workspace_id,
        world.workspace_id,
    )
    await page.context.set_offline(False)
    await console.heading("Sign in again")
    await page.get_by_label("API key or session token").fill(other)
    await page.keyboard.press("Enter")
    await expect(message).to_have_value("a long thought\n\nand its end")
    await page.get_by_role("button", name="Send", exact=True).click()
    await expect(page.get_by_text("Started a run · Queued")).to_be_visible()
    # Signing out clears the draft.
    await message.fill("mine")
    await page.get_by_role("button", name="Sign out").click()
    await console.sign_in(other, f"/sessions/{session_id}")
    await expect(message).to_have_value("")


async def test_refused_input_becomes_the_draft_again(console: ConsolePage, world: World) -> None:
    page = console.page
    session_id = await world.new_session()
    await console.sign_in(world.key, f"/sessions/{session_id}")
    message = page.get_by_label("Message")
    await message.fill("too late")
    await world.patch(f"/v1/sessions/{session_id}", {"archived": True})
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("archived")
    await expect(message).to_have_value("too late")
    await expect(message).to_be_focused()
    assert await page.get_by_role("article", name="Input").count() == 0
    await world.delete(f"/v1/sessions/{session_id}")
    await expect(page.get_by_role("alert").filter(has_text="No such session")).to_be_visible()
    await expect(message).to_have_value("too late")
