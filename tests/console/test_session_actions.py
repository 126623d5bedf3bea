"""Actions on a session in the browser: delivery, withdraw, retry, edit, fork, export, settings."""

import json
import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.console.browser import NARROW, WIDE, ConsolePage
from tests.console.test_transcript import append
from tests.workers import at_rest, check_log, log_of, started
from tests.world import World, bundle

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("worker"), pytest.mark.long]

SLOW = "demo: steps 0\ndemo: slow 60"


async def choose(page: Page, item: str) -> None:
    await page.get_by_role("button", name="More").click()
    await page.get_by_role("button", name=item).click()


async def send(page: Page, text: str, delivery: str | None = None) -> None:
    """By keyboard only."""
    await page.get_by_label("Message").focus()
    if delivery is not None:
        for _ in range(2):
            await page.keyboard.press("Tab")
        await expect(page.get_by_label("Delivery")).to_be_focused()
        # Typing selects an option.
        await page.keyboard.type(delivery)
        await page.get_by_label("Message").focus()
    await page.keyboard.insert_text(text)
    await page.keyboard.press("Enter")


async def test_queue_interrupt_and_withdraw(console: ConsolePage, world: World) -> None:
    page = console.page
    session_id = await world.new_session()
    await console.sign_in(world.key, f"/sessions/{session_id}")
    await expect(page.get_by_label("Delivery")).to_be_hidden()
    await send(page, SLOW)
    await started(world, session_id)
    await send(page, "first in the queue", "Queue")
    await send(page, "second in the queue", "Queue")
    await send(page, "to the current run")
    notes = page.locator(".tail .stage")
    await expect(notes).to_have_text(["Queued after the current run"] * 2 + ["Queued for the current run"])
    await expect(page.get_by_role("button", name="Send to current run")).to_be_visible()
    await expect(page.get_by_role("img", name=re.compile("Run 2, .*pending now"))).to_be_visible()
    assert await console.accessibility_problems() == []
    second = page.get_by_role("article", name="Input").filter(has_text="second in the queue")
    await second.get_by_role("button", name="Withdraw").click()
    await expect(second.get_by_text("Withdrawn", exact=True)).to_be_visible()
    await expect(notes).to_have_count(2)
    await expect(page.get_by_label("Delivery")).to_be_visible()
    await page.get_by_label("Delivery").select_option("Interrupt")
    await expect(page.get_by_role("button", name="Interrupt and send")).to_be_visible()
    await page.get_by_label("Message").fill("this instead")
    await page.get_by_role("button", name="Interrupt and send").click()
    # The interrupting run goes before the pending one.
    await expect(page.get_by_text("✓ Completed")).to_have_count(2)
    await expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()
    await expect(page.get_by_label("Delivery")).to_be_hidden()
    inputs = [SLOW, "second in the queue", "to the current run", "this instead", "first in the queue"]
    await expect(page.get_by_role("article", name="Input")).to_contain_text(inputs)
    await expect(page.locator(".stage", has_text="Discarded: The run was cancelled.")).to_have_count(1)
    # A run whose only input was withdrawn cannot be retried; the interrupted one can.
    await expect(page.get_by_text("■ Cancelled")).to_have_count(2)
    await expect(page.get_by_role("button", name="Retry")).to_have_count(1)
    # The time in the queue is no part of the duration.
    await expect(page.locator(".timeline").get_by_text("Not started")).to_have_count(1)
    check_log(await log_of(world, session_id))


async def test_retry_remove_and_edit(console: ConsolePage, world: World) -> None:
    page = console.page
    session_id = await world.new_session()
    await world.submit(session_id, "demo: fail")
    await at_rest(world, session_id)
    await console.sign_in(world.key, f"/sessions/{session_id}")
    await expect(page.get_by_text("✕ Failed: ")).to_have_count(1)
    await page.get_by_role("button", name="Retry").click()
    await expect(page.get_by_text("✕ Failed: ")).to_have_count(2)
    await expect(page.get_by_text("Retry · Read at step 1")).to_be_visible()
    first, second = (page.get_by_role("article", name="Input").nth(number) for number in range(2))
    await expect(page.get_by_text("Not visible to the model")).to_have_count(0)
    await expect(page.locator(".end").first).to_contain_text("Retried")
    await expect(page.get_by_role("button", name="Retry")).to_have_count(1)
    # A removed input is no longer repeated.
    await second.hover()
    await second.get_by_role("button", name="Remove").click()
    for removed in (first, second):
        await expect(removed.get_by_text("Not visible to the model: removed")).to_be_visible()
    await expect(page.get_by_role("button", name="Retry")).to_have_count(0)
    assert await page.get_by_role("button", name="Remove").count() == 0
    await send(page, "hello")
    await expect(page.get_by_text("✓ Completed")).to_be_visible()
    await expect(page.locator(".end").last).to_contain_text(re.compile(r"tokens in, \d+ out"))
    before = await log_of(world, session_id)
    # The page shows the same after a reload.
    await page.reload()
    await expect(page.get_by_text("Not visible to the model")).to_have_count(2)
    await expect(page.get_by_role("button", name="Retry")).to_have_count(0)
    third = page.get_by_role("article", name="Input").nth(2)
    await third.hover()
    await expect(third.locator(".at").last).to_have_css("opacity", "1")
    await third.get_by_role("button", name="Edit").click()
    origin = page.get_by_label("About this session").get_by_role("link", name="demo: fail")
    await expect(origin).to_be_visible()
    await expect(page.get_by_label("Message")).to_have_value("hello")
    await expect(page.get_by_text("✕ Failed: ")).to_have_count(2)
    assert await page.get_by_role("button", name="Retry").count() == 0, "the runs belong to the original session"
    await origin.click()
    await expect(origin).to_have_count(0)
    await expect(page.get_by_role("article", name="Input")).to_have_count(3)
    assert await log_of(world, session_id) == before
    await choose(page, "Fork")
    await expect(origin).to_be_visible()
    await expect(page.get_by_role("article", name="Input")).to_have_count(3)
    assert await console.accessibility_problems() == []
    await page.get_by_role("navigation").get_by_role("link", name="Sessions").click()
    await expect(page.get_by_role("row").filter(has_text="Forked")).to_have_count(2)


async def test_turns_that_the_provider_refused(console: ConsolePage, world: World) -> None:
    page = console.page
    session_id = await world.new_session()
    run_id = "0199d2a0-0000-7000-8000-000000000001"
    await append(
        world,
        session_id,
        [
            ("input.accepted", run_id, {"input_id": "a", "text": "answered"}),
            ("run.started", run_id, {"attempt": 1}),
            ("input.consumed", run_id, {"input_id": "a", "step": 1}),
            ("message", run_id, {"role": "assistant", "text": "I look it up."}),
            ("tool.call", run_id, {"call_id": "t", "name": "look_up", "arguments": {}}),
            ("tool.result", run_id, {"call_id": "t", "name": "look_up", "text": "found"}),
            ("input.accepted", run_id, {"input_id": "b", "text": "refused"}),
            ("input.consumed", run_id, {"input_id": "b", "step": 2}),
            ("run.failed", run_id, {"reason": "Too long.", "refused_by_provider": True}),
        ],
    )
    await console.sign_in(world.key, f"/sessions/{session_id}")
    await expect(page.locator(".left-out")).to_have_count(2)
    await expect(page.locator("details.left-out")).to_contain_text("look_up")
    await expect(page.get_by_text("Not visible to the model: refused by the provider")).to_have_count(2)
    await expect(page.locator("article.left-out")).to_contain_text("refused")
    for width in (WIDE, NARROW):
        await console.resize(width)
        assert await console.accessibility_problems() == []
        assert await console.overflow() <= 0


async def test_export(console: ConsolePage, world: World, tmp_path: Path) -> None:
    page = console.page
    session_id = await world.new_session()
    await world.submit(session_id, "hello")
    await at_rest(world, session_id)
    await console.sign_in(world.key, f"/sessions/{session_id}")
    await expect(page.get_by_text("✓ Completed")).to_be_visible()
    saved = {}
    for item, extension in (("Export as Markdown", "md"), ("Export as JSON Lines", "jsonl")):
        async with page.expect_download() as download:
            await choose(page, item)
        found = await download.value
        assert found.suggested_filename == f"session-{session_id}.{extension}"
        await found.save_as(tmp_path / extension)
        saved[extension] = (tmp_path / extension).read_text()
    assert "hello" in saved["md"]
    assert [json.loads(line)["id"] for line in saved["jsonl"].splitlines()] == [
        entry["id"] for entry in await log_of(world, session_id)
    ]


async def test_edit_a_session(console: ConsolePage, world: World) -> None:
    page = console.page
    skill_id = await world.new_skill()
    assert (await world.push(skill_id, bundle("weather"))).status_code == 201
    session_id = await world.new_session()
    await console.sign_in(world.key, f"/sessions/{session_id}")
    details = page.get_by_role("complementary")
    default = (await world.get("/v1/models")).json()["default"]
    await expect(details).to_contain_text(f"Default ({default})")
    await page.get_by_role("button", name="Edit session").click()
    dialog = page.get_by_role("dialog", name="Edit session")
    await expect(dialog.get_by_label("Model")).to_have_attribute("placeholder", f"Default ({default})")
    assert await dialog.locator("datalist option").count() > 0
    await dialog.get_by_label("Title").fill("Import")
    await dialog.get_by_label("Instructions").fill("Be brief.")
    await dialog.get_by_role("checkbox", name="demo").check()
    await dialog.get_by_label("Temperature").fill("0.5")
    await dialog.get_by_label("Max output tokens").fill("2000")
    await dialog.get_by_label("Reasoning effort").select_option("High")
    await dialog.get_by_label("Model").fill("nonsense:model")
    assert await console.accessibility_problems() == []
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog.get_by_role("alert")).to_be_visible()
    await dialog.get_by_label("Model").fill("demo")
    await dialog.get_by_role("button", name="Save").click()
    await console.heading("Import")
    await expect(details).to_contain_text("Reasoning effort")
    session = (await world.get(f"/v1/sessions/{session_id}")).json()
    assert session["settings"] == {"temperature": 0.5, "max_output_tokens": 2000, "reasoning_effort": "high"}
    assert (session["model"], session["instructions"]) == ("demo", "Be brief.")
    assert session["skills"] == [{"skill_id": skill_id, "version": None}]
    # Only what was changed is sent.
    await page.get_by_role("button", name="Edit session").click()
    await expect(dialog.get_by_label("Temperature")).to_have_value("0.5")
    await expect(dialog.get_by_role("checkbox", name="demo")).to_be_checked()
    await dialog.get_by_label("Temperature").fill("")
    async with page.expect_request("**/v1/sessions/*") as request:
        await dialog.get_by_role("button", name="Save").click()
    sent = (await request.value).post_data_json
    assert sent == {"settings": {"temperature": None, "max_output_tokens": 2000, "reasoning_effort": "high"}}
    await expect(details).not_to_contain_text("Temperature")
