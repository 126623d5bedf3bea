"""A session in the browser: talked in, steered, cancelled, shared, and not lost when a connection or a key is."""

from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Browser, Route, expect

from tests.console.browser import NARROW, Visitor, visiting
from tests.workers import check_log, eventually, log_of, started, working
from tests.world import Server, World, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")


def accepted(log: list[dict[str, object]]) -> list[str]:
    return [entry["data"]["text"] for entry in log if entry["type"] == "input.accepted"]  # type: ignore[index]


@pytest.mark.usefixtures("worker")
async def test_a_conversation_by_keyboard_that_is_steered(visitor: Visitor, world: World) -> None:
    page = visitor.page
    session_id = await world.new_session()
    await visitor.sign_in(world.key, f"/sessions/{session_id}")
    await expect(page.get_by_role("heading", name="Nothing was said yet")).to_be_visible()
    message = page.get_by_label("Your message")
    await expect(message).to_be_focused()
    await expect(page.get_by_role("button", name="Start a run")).to_be_visible()
    await page.keyboard.type("hello")
    await page.keyboard.press("Shift+Enter")
    await page.keyboard.type("demo: slow 4")
    await page.keyboard.press("Enter")
    await expect(message).to_have_value("")
    await expect(page.get_by_role("button", name="Steer the run")).to_be_visible()
    await expect(page.get_by_text("started a run · taken up at step 1")).to_be_visible()
    # The text grows before it is stored.
    await expect(page.get_by_role("article", name="Answer")).to_contain_text("Demo model: step")
    assert not [entry for entry in await log_of(world, session_id) if entry["type"] == "message"]
    await page.keyboard.type("be brief\n")
    await expect(page.get_by_text("accepted · steered the run · not taken up yet")).to_be_visible()
    await expect(page.get_by_role("status").filter(has_text="Accepted: it steered the run.")).to_be_attached()
    await expect(page.get_by_text("steered the run · taken up at step 2")).to_be_visible()
    await expect(page.get_by_text("✓ The run has ended.")).to_be_visible()
    await expect(page.get_by_role("button", name="Start a run")).to_be_visible()
    await expect(page.get_by_role("article", name="Input")).to_have_count(2)
    await expect(page.get_by_role("article", name="Answer")).to_have_count(2)
    await expect(page.get_by_role("article", name="Answer").last).to_contain_text("be brief")
    await expect(page.get_by_role("img", name="steered 1 time, succeeded.")).to_be_visible()
    # Tools fold open, by keyboard too: the focus goes back from the message to the last of them.
    tool = page.locator("details", has_text="current_time")
    await tool.locator("summary").focus()
    await page.keyboard.press("Enter")
    await expect(tool.get_by_text("UTC")).to_be_visible()
    assert await visitor.problems() == []
    log = await log_of(world, session_id)
    assert accepted(log) == ["hello\ndemo: slow 4", "be brief"]
    check_log(log)


@pytest.mark.usefixtures("worker")
async def test_a_run_is_cancelled_and_what_it_had_not_taken_up_is_discarded(visitor: Visitor, world: World) -> None:
    page = visitor.page
    session_id = await world.new_session()
    await visitor.sign_in(world.key, f"/sessions/{session_id}")
    message = page.get_by_label("Your message")
    assert await page.get_by_role("button", name="Cancel the run").count() == 0
    await message.fill("demo: slow 60")
    await page.get_by_role("button", name="Start a run").click()
    await expect(page.get_by_text("started a run · taken up at step 1")).to_be_visible()
    await message.fill("never taken up")
    await page.get_by_role("button", name="Steer the run").click()
    await expect(page.get_by_text("not taken up yet")).to_be_visible()
    await world.submit(session_id, "by somebody else")
    await expect(page.get_by_text("sent from elsewhere · accepted")).to_be_visible()
    await message.fill("half a li")
    await page.get_by_role("button", name="Cancel the run").click()
    await expect(page.get_by_text("■ The run was cancelled.")).to_be_visible()
    await expect(page.locator(".stage", has_text="discarded: The run was cancelled.")).to_have_count(2)
    await expect(message).to_have_value("half a li")
    await expect(message).to_be_focused()
    await expect(page.get_by_role("button", name="Start a run")).to_be_visible()
    await expect(page.get_by_role("img", name="steered 2 times, cancelled.")).to_be_visible()


@pytest.mark.usefixtures("worker")
async def test_a_token_is_shared_used_and_revoked(
    visitor: Visitor, world: World, browser: Browser, server: Server
) -> None:
    page = visitor.page
    session_id = await world.new_session()
    await visitor.sign_in(world.key, f"/sessions/{session_id}")
    await page.get_by_role("button", name="Share").click()
    dialog = page.get_by_role("dialog", name="Share this session")
    await expect(dialog.get_by_text("No token is in use.")).to_be_visible()
    await dialog.get_by_label("Valid for").select_option("30 days")
    await dialog.get_by_role("button", name="Create a token").click()
    copy = dialog.get_by_role("button", name="Copy the token")
    await expect(copy).to_be_focused()
    await copy.click()
    await expect(dialog.get_by_text("Copied")).to_be_visible()
    token: str = await page.evaluate("navigator.clipboard.readText()")
    assert token.startswith("qds_")
    assert await visitor.problems() == []
    async with visiting(browser, server.url, width=NARROW, scheme="dark") as guest:
        await guest.sign_in(token, "/keys")
        await guest.heading("Untitled session")
        assert await guest.page.get_by_role("navigation").count() == 0
        assert await guest.page.get_by_role("button", name="Share").count() == 0
        await guest.page.get_by_label("Your message").fill("demo: slow 60")
        await guest.page.get_by_role("button", name="Start a run").click()
        await expect(guest.page.get_by_text("started a run · taken up at step 1")).to_be_visible()
        await guest.page.get_by_role("button", name="Cancel the run").click()
        await expect(guest.page.get_by_text("■ The run was cancelled.")).to_be_visible()
        assert await guest.problems() == []
        assert await guest.overflow() <= 0
        await dialog.get_by_role("button", name="Revoke qds_").click()
        sure = page.get_by_role("dialog", name="Revoke qds_")
        await sure.get_by_role("button", name="Revoke the token").click()
        await expect(dialog.get_by_text("No token is in use.")).to_be_visible()
        await guest.heading("Sign in again")
    await dialog.get_by_role("button", name="Close").click()
    await expect(page.get_by_role("button", name="Share")).to_be_focused()
    # The other side saw it all.
    await expect(page.get_by_text("sent from elsewhere · started a run · taken up")).to_be_visible()


async def test_a_restart_of_the_server_loses_and_doubles_nothing(
    browser: Browser, database_url: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        server = first.enter_context(serving(database_url, tmp_path))
        stack.enter_context(working(database_url, tmp_path))
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http, visiting(browser, server.url) as visitor:
            world = await World.create(database_url, http)
            page = visitor.page
            session_id = await world.new_session()
            await visitor.sign_in(world.key, f"/sessions/{session_id}")
            message = page.get_by_label("Your message")
            await message.fill("demo: slow 3")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("article", name="Answer")).to_contain_text("Demo model")
            first.close()
            lost = page.get_by_role("status").filter(has_text="Connection lost. Trying again…")
            await expect(lost).to_be_visible()
            for text in ("sent while it was away", "and one more"):
                await message.fill(text)
                await page.keyboard.press("Enter")
            await expect(page.get_by_text("sending…")).to_have_count(2)
            stack.enter_context(serving(database_url, tmp_path, SERVER_PORT=server.port))
            await expect(page.get_by_role("status").filter(has_text="Connected again.")).to_be_visible()
            await expect(page.get_by_text("sending…")).to_have_count(0)
            await expect(page.get_by_role("button", name="Start a run")).to_be_visible()
            log = await log_of(world, session_id)
            said = [entry["data"]["text"] for entry in log if entry["type"] == "message"]
            await expect(page.get_by_role("article", name="Answer")).to_have_count(len(said))
            inputs = page.get_by_role("article", name="Input")
            await expect(inputs).to_contain_text(["demo: slow 3", "sent while it was away", "and one more"])
            await expect(inputs).to_have_count(3)
    check_log(log)
    assert accepted(log) == ["demo: slow 3", "sent while it was away", "and one more"]


async def test_an_answer_that_was_lost_on_its_way_counts_once(visitor: Visitor, world: World) -> None:
    page = visitor.page
    session_id = await world.new_session()
    await visitor.sign_in(world.key, f"/sessions/{session_id}")
    keys: list[str | None] = []

    async def lose_the_first_answer(route: Route) -> None:
        if route.request.method == "POST":
            keys.append(route.request.headers.get("idempotency-key"))
        if len(keys) == 1:
            await route.fetch()
            await route.abort("connectionreset")
        else:
            await route.continue_()

    await page.route("**/v1/sessions/*/events", lose_the_first_answer)
    await page.get_by_label("Your message").fill("only once")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("accepted · started a run")).to_be_visible()
    # The second thing typed goes out when the first is answered, so by then it was sent twice.
    await page.get_by_label("Your message").fill("and then this")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("accepted · steered the run")).to_be_visible()
    assert len(keys) == 3
    assert keys[0] == keys[1] != keys[2]
    await expect(page.get_by_role("article", name="Input")).to_have_count(2)
    assert accepted(await log_of(world, session_id)) == ["only once", "and then this"]


async def test_what_was_sent_goes_out_also_when_the_page_is_left(visitor: Visitor, world: World) -> None:
    page = visitor.page
    session_id = await world.new_session()
    await visitor.sign_in(world.key, f"/sessions/{session_id}")
    await expect(page.get_by_label("Your message")).to_be_visible()
    await page.context.set_offline(True)
    for text in ("on its way", "and the next"):
        await page.get_by_label("Your message").fill(text)
        await page.keyboard.press("Enter")
    await expect(page.get_by_text("sending…")).to_have_count(2)
    await page.get_by_role("link", name="Skills").click()
    await visitor.heading("Skills")
    await page.context.set_offline(False)
    await eventually(lambda: accepted_in(world, session_id, 2))
    await page.get_by_role("link", name="Sessions").click()
    await page.get_by_role("link", name="Untitled session").click()
    # Not twice: the log holds what the page had sent before.
    await expect(page.get_by_role("article", name="Input")).to_have_count(2)
    await expect(page.get_by_text("not taken up yet")).to_have_count(2)
    assert accepted(await log_of(world, session_id)) == ["on its way", "and the next"]


async def accepted_in(world: World, session_id: str, count: int) -> bool:
    return len(accepted(await log_of(world, session_id))) == count


async def test_a_key_that_is_refused_in_the_middle_of_work_keeps_what_was_typed(visitor: Visitor, world: World) -> None:
    page = visitor.page
    session_id = await world.new_session()
    await visitor.sign_in(world.key, f"/sessions/{session_id}")
    message = page.get_by_label("Your message")
    await message.fill("a long thought")
    # Also over a look at another page.
    await page.get_by_role("link", name="Sessions").click()
    await page.get_by_role("link", name="Untitled session").click()
    await expect(message).to_have_value("a long thought")
    other = await world.new_key()
    await page.context.set_offline(True)
    await message.press("Enter")
    await expect(page.get_by_text("sending…")).to_be_visible()
    await message.fill("and its end")
    await world.execute(
        "UPDATE api_keys SET revoked_at = now() WHERE label = 'test' AND workspace_id = %s AND id = "
        "(SELECT min(id::text)::uuid FROM api_keys WHERE workspace_id = %s)",
        world.workspace_id,
        world.workspace_id,
    )
    await page.context.set_offline(False)
    await visitor.heading("Sign in again")
    await page.get_by_label("API key or session token").fill(other)
    await page.keyboard.press("Enter")
    await expect(message).to_have_value("a long thought\n\nand its end")
    await page.get_by_role("button", name="Start a run").click()
    await expect(page.get_by_text("accepted · started a run")).to_be_visible()
    # Signing out is leaving: nothing of it stays.
    await message.fill("mine")
    await page.get_by_role("button", name="Sign out").click()
    await visitor.sign_in(other, f"/sessions/{session_id}")
    await expect(message).to_have_value("")


async def test_a_refused_input_goes_back_with_the_reason(visitor: Visitor, world: World) -> None:
    page = visitor.page
    session_id = await world.new_session()
    await visitor.sign_in(world.key, f"/sessions/{session_id}")
    message = page.get_by_label("Your message")
    await message.fill("too late")
    await world.patch(f"/v1/sessions/{session_id}", {"archived": True})
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("archived")
    await expect(page.get_by_role("alert")).to_contain_text("Request ")
    await expect(message).to_have_value("too late")
    await expect(message).to_be_focused()
    assert await page.get_by_role("article", name="Input").count() == 0
    await world.delete(f"/v1/sessions/{session_id}")
    await expect(page.get_by_role("alert").filter(has_text="No such session")).to_be_visible()
    await expect(message).to_have_value("too late")


@pytest.mark.usefixtures("worker")
async def test_who_comes_later_sees_the_run_that_is_under_way(visitor: Visitor, world: World) -> None:
    session_id = await world.new_session()
    await world.submit(session_id, "demo: slow 60")
    await started(world, session_id)
    await visitor.sign_in(world.key, f"/sessions/{session_id}")
    await expect(visitor.page.get_by_role("button", name="Steer the run")).to_be_visible()
    await expect(visitor.page.get_by_role("img", name="running now.")).to_be_visible()
    await expect(visitor.page.get_by_text("started a run · taken up at step 1")).to_be_visible()
    await visitor.page.get_by_role("button", name="Cancel the run").click()
    await expect(visitor.page.get_by_role("button", name="Start a run")).to_be_visible()
