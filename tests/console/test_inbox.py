"""Requests of waiting runs in the browser: each kind from the call to the answer, in the session and in the Inbox."""

import re
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.console.browser import NARROW, WIDE, ConsolePage, open_console
from tests.workers import at_rest, check_log, eventually, log_of, losing_notes
from tests.world import Server, World

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("worker"), pytest.mark.long]

METER = {"name": "read_meter", "description": "Reads the meter of a site.", "parameters": {"type": "object"}}


async def create_session(world: World, **fields: object) -> str:
    answer = await world.post("/v1/sessions", fields)
    assert answer.status_code == 201, answer.text
    session_id: str = answer.json()["id"]
    return session_id


async def submit(world: World, session_id: str, text: str) -> None:
    answer = await world.submit(session_id, text)
    assert answer.status_code == 200, answer.text


async def open_actions(world: World, session_id: str) -> list[dict[str, Any]]:
    """Wait until the session has open actions."""

    async def look() -> list[dict[str, Any]]:
        answer = await world.get(f"/v1/actions?state=open&session_id={session_id}")
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["items"]
        return found

    found: list[dict[str, Any]] = await eventually(look)
    return found


async def resolve(world: World, action_id: str, body: dict[str, object]) -> None:
    answer = await world.post(f"/v1/actions/{action_id}/resolve", body)
    assert answer.status_code == 200, answer.text


async def set_argument(world: World, action_id: str, name: str, value: str) -> None:
    query = "UPDATE actions SET arguments = arguments || jsonb_build_object(%s::text, %s::text) WHERE id = %s"
    async with await world.connect() as connection:
        await connection.execute(query, (name, value, action_id))


def request(page: Page | Locator, title: str) -> Locator:
    return page.get_by_role("region", name=title)


async def notes(world: World, session_id: str) -> list[str]:
    return [entry["data"]["text"] for entry in await log_of(world, session_id) if entry["type"] == "note"]


async def send(page: Page, text: str) -> None:
    await page.get_by_label("Message", exact=True).fill(text)
    await page.keyboard.press("Enter")


async def test_approvals_in_a_session(console: ConsolePage, world: World) -> None:
    page = console.page
    session_id = await world.new_session()
    await console.sign_in(world.key, f"/sessions/{session_id}")
    await send(page, "note: Buy rope")
    card = request(page, "Approval required: add_note")
    await expect(card).to_contain_text('"text": "Buy rope"')
    await expect(card.get_by_text("Expires in 7 days")).to_be_visible()
    # The title says it.
    await expect(card).not_to_contain_text("The model wants to call")
    await expect(page.locator("summary").filter(has_text="add_note")).to_contain_text("Waiting for approval")
    await expect(page.get_by_role("img", name=re.compile("Run 1, .* waiting .*waiting now"))).to_be_visible()
    await expect(page.locator(".composer .tag")).to_have_text("Waiting for approval")
    await expect(page.get_by_text("It reads messages when it continues.")).to_be_visible()
    await expect(page.get_by_role("link", name="Inbox")).to_contain_text("1 open request")
    for width in (NARROW, WIDE):
        await console.resize(width)
        assert await console.overflow() <= 0
    assert await console.accessibility_problems() == []
    await send(page, "Thank you")

    # Arguments that are no JSON object are not sent.
    await card.get_by_role("button", name="Edit").click()
    arguments = card.get_by_label("Arguments")
    await arguments.fill('["Buy rope"]')
    await expect(card.get_by_text("Enter a JSON object")).to_be_visible()
    await card.get_by_role("button", name="Allow with changes").click()
    await expect(arguments).to_be_focused()
    await expect(card.get_by_text("Enter a JSON object")).to_have_count(1)
    await arguments.fill('{"text": "Buy thick rope"}')
    await card.get_by_role("button", name="Allow with changes").click()
    await expect(page.locator(".action.answered")).to_contain_text("Allowed with changed arguments by test")
    await expect(page.locator("figure.quote")).to_contain_text("Buy thick rope")
    await expect(page.get_by_text("✓ Completed")).to_be_visible()
    # The message that was sent meanwhile was read by the same run.
    await expect(page.get_by_role("article", name="Answer").last).to_contain_text("Thank you")
    await expect(page.get_by_role("link", name="Inbox")).to_have_text("Inbox")
    await page.get_by_role("button", name="Details").click()
    await expect(page.locator(".end .facts")).to_contain_text(re.compile(r"Model\s*demo.*tokens in, .*Unknown price"))
    tool = page.locator("details.tool").filter(has_text="add_note")
    await tool.locator("summary").click()
    await expect(tool.locator(".starts")).to_contain_text("attempt ")

    # A denial by keyboard, with a message. Invisible characters are shown as codes, and as escapes in the text to edit.
    await send(page, "note: Sell \u202ethe boat")
    await expect(card).to_contain_text("Sell ⟨U+202E⟩the boat")
    await tool.last.locator("summary").click()
    await expect(tool.last.locator("pre")).to_contain_text("Sell ⟨U+202E⟩the boat")
    await card.get_by_role("button", name="Edit").click()
    await expect(arguments).to_have_value(re.compile(r"Sell \\u202ethe boat"))
    await card.get_by_role("button", name="Deny").focus()
    await page.keyboard.press("Enter")
    await expect(card.get_by_label("Message to the agent")).to_be_focused()
    await expect(card.locator("pre")).to_contain_text("Sell ⟨U+202E⟩the boat")
    await page.keyboard.type("We need it.")
    await page.keyboard.press("Enter")
    denied = page.locator(".action.answered").filter(has_text="Denied by test")
    await expect(denied.locator("summary")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(denied.locator("pre")).to_have_text("We need it.")
    await expect(page.get_by_text("✓ Completed")).to_have_count(2)

    # Once allowed for the session, the tool does not ask again.
    await send(page, "note: Paint the mast")
    await card.get_by_role("button", name="Allow for this session").click()
    await expect(page.locator(".action.answered").last).to_contain_text("Allowed for this session by test")
    await expect(page.get_by_text("✓ Completed")).to_have_count(3)
    await send(page, "note: Oil the winch")
    await expect(page.locator("figure.quote")).to_contain_text(["Buy thick rope", "Paint the mast", "Oil the winch"])
    await expect(page.get_by_text("✓ Completed")).to_have_count(4)
    await page.reload()
    await expect(page.locator(".action.answered")).to_have_count(3)
    assert await console.accessibility_problems() == []
    assert await notes(world, session_id) == ["Buy thick rope", "Paint the mast", "Oil the winch"]
    check_log(await log_of(world, session_id))


async def test_inbox(console: ConsolePage, world: World) -> None:
    page = console.page
    session_id = await create_session(world, title="Meter readings", client_tools=[METER])
    await console.sign_in(world.key, "/inbox")
    await expect(page.get_by_role("heading", name="No open requests")).to_be_visible()
    await submit(world, session_id, 'call: read_meter {"site": "Pier 4"}\ncall: add_note {"text": "no"}')
    actions = {one["tool"]: one["id"] for one in await open_actions(world, session_id)}
    # Without a reload.
    items = page.locator(".inbox-item")
    await expect(items).to_have_count(2)
    await expect(page.get_by_role("link", name="Inbox")).to_contain_text("2 open requests")
    # A page of the API that is too large for both is not counted as if there were no more.
    await set_argument(world, max(actions.values()), "padding", "x" * 5_000_000)
    await page.reload()
    await expect(page.get_by_role("link", name="Inbox")).to_contain_text("1+ open requests")
    await set_argument(world, max(actions.values()), "padding", "x")
    await page.reload()
    await expect(page.get_by_role("link", name="Inbox")).to_contain_text("2 open requests")
    item = items.filter(has_text="read_meter")
    await expect(item).to_contain_text(
        re.compile(r'Tool result.*\{"site":"Pier 4"\}.*Meter readings.*expires in 7 days')
    )
    for width in (NARROW, WIDE):
        await console.resize(width)
        assert await console.overflow() <= 0
    assert await console.accessibility_problems() == []

    # Answered in place. JSON is sent as JSON, without rounding its numbers, so that the CLI sends the same answer.
    await item.get_by_role("button", name="read_meter").click()
    for name in ("Return result", "Return an error"):
        await item.get_by_role("button", name=name).click()
        await expect(item.get_by_label("Result", exact=True)).to_be_focused()
    await item.get_by_label("Result", exact=True).fill('{"kWh": 9007199254740993}')
    assert await console.accessibility_problems() == []
    await item.get_by_role("button", name="Return result").click()
    await expect(item.locator(".action.answered")).to_contain_text("Result returned by test")
    await expect(item.locator(".action.answered summary")).to_be_focused()
    await resolve(world, actions["read_meter"], {"result": {"kWh": 9007199254740993}})

    # Answered elsewhere while the form is open; then too late.
    first = items.filter(has_text="add_note")
    await first.get_by_role("button", name="add_note").click()
    await page.route("**/v1/actions?*", lambda route: route.abort())
    await resolve(world, actions["add_note"], {"decision": "deny"})
    await first.get_by_role("button", name="Allow", exact=True).click()
    await expect(page.locator(".notice")).to_contain_text("Already closed: Denied by test.")
    await expect(first.locator(".action.answered")).to_contain_text("Denied by test")
    await page.unroute("**/v1/actions?*")
    await at_rest(world, session_id)

    # The link opens the session at the request; an answer from elsewhere updates the card.
    await submit(world, session_id, "note: Pier 5")
    [action] = await open_actions(world, session_id)
    pier = items.filter(has_text="Pier 5")
    await pier.get_by_role("link", name="Meter readings").click()
    card = request(page, "Approval required: add_note")
    await expect(card).to_be_focused()
    await expect(card).to_be_in_viewport()
    await resolve(world, action["id"], {"decision": "allow"})
    await expect(page.locator(".action.answered").last).to_contain_text("Allowed by test")
    await expect(page.locator("figure.quote").last).to_contain_text("Pier 5")
    await at_rest(world, session_id)

    # Calls whose requests are answered, while the run waits for another one.
    await submit(world, session_id, "\n".join(f'call: add_note {{"text": "{text}"}}' for text in "abc"))
    await expect(card).to_have_count(3)
    texts = {one["arguments"]["text"]: one["id"] for one in await open_actions(world, session_id)}
    await resolve(world, texts["a"], {"decision": "deny"})
    await resolve(world, texts["b"], {"decision": "allow"})
    calls = page.locator("details.tool > summary")
    expected = ["Denied", "Allowed, waiting for other requests", "Waiting for approval"]
    for nth, state in enumerate(expected, start=-3):
        await expect(calls.nth(nth)).to_contain_text(state)
    await resolve(world, texts["c"], {"decision": "deny"})
    await at_rest(world, session_id)

    # Cancelled with its run, and the filters.
    await submit(world, session_id, "note: Pier 6")
    await expect(card).to_be_visible()
    await page.get_by_role("button", name="Cancel run").click()
    await expect(page.locator(".action.answered").last).to_contain_text("Cancelled with its run")
    await page.get_by_role("link", name="Inbox").click()
    await expect(page.get_by_role("heading", name="No open requests")).to_be_visible()
    await page.get_by_role("radio", name="All").check()
    await expect(items.filter(has_text="Cancelled")).to_have_count(1)
    await page.get_by_label("Kind").select_option("Tool result")
    await expect(items).to_have_count(1)
    assert page.url.endswith("#/inbox?state=all&kind=tool_result")
    await page.reload()
    await expect(items).to_have_count(1)
    await expect(items).to_contain_text("Answered")


async def test_unknown_outcomes_and_limits(console: ConsolePage, world: World) -> None:
    page = console.page
    session_id = await create_session(world, tool_policy={"add_note": "allow"})
    await console.sign_in(world.key, f"/sessions/{session_id}")
    card = request(page, "Outcome unknown: add_note")
    for answer, shown in (
        ("It was done", "Marked as done"),
        ("It failed", "Marked as failed"),
        ("Run again", "Run again"),
    ):
        async with losing_notes(world, session_id):
            await send(page, "note: Ahoy")
            await expect(card).to_contain_text("A worker stopped during this call")
        await expect(page.locator(".composer .tag")).to_have_text("Waiting for you")
        if answer == "It was done":
            assert await console.accessibility_problems() == []
            await card.get_by_label("Result", exact=True).fill("It is in the book.")
        await card.get_by_role("button", name=answer).click()
        await expect(page.locator(".action.answered").last).to_contain_text(f"{shown} by test")
        await at_rest(world, session_id)
    results = [entry["data"]["text"] for entry in await log_of(world, session_id) if entry["type"] == "tool.result"]
    assert results[0] == "It is in the book."
    # Only the call that was to be repeated stored its note.
    assert await notes(world, session_id) == ["Ahoy"]

    session_id = await create_session(world, limits={"run": {"max_tokens": 10}})
    await console.load(f"/sessions/{session_id}")
    card = request(page, "Limit reached")
    for answer in ("Raise limit", "Stop run"):
        await send(page, "hello")
        await expect(card).to_contain_text(re.compile(r"\d+ of 10 tokens used"))
        await expect(page.locator(".composer .tag")).to_have_text("Limit reached")
        assert await console.accessibility_problems() == []
        if answer == "Raise limit":
            await card.get_by_label("New limit for this run, in tokens").fill("100000")
        await card.get_by_role("button", name=answer).click()
        await at_rest(world, session_id)
    await expect(page.locator(".action.answered")).to_contain_text(["Limit raised to 100,000 tokens", "Run stopped"])
    await expect(page.get_by_text("✓ Completed")).to_have_count(1)
    await expect(page.get_by_text("✕ Failed")).to_have_count(1)


async def test_tokens_settings_usage_and_daily_limit(
    console: ConsolePage, world: World, browser: Browser, server: Server
) -> None:
    page = console.page
    session_id = await create_session(world, title="Shared", client_tools=[METER])
    await console.sign_in(world.key, f"/sessions/{session_id}")
    # Tool policy and limits of the session.
    await page.get_by_role("button", name="Edit session").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_label("Client tools")).to_have_value(re.compile("Reads the meter of a site."))
    await dialog.get_by_role("button", name="Add rule").click()
    await dialog.get_by_label("Tool or prefix").fill("add_*")
    await dialog.get_by_label("Rule", exact=True).select_option("Deny")
    await dialog.get_by_role("group", name="Limit for the session").get_by_label("Cost in USD").fill("2.5")
    await console.resize(NARROW)
    assert await console.overflow() <= 0
    await console.resize(WIDE)
    assert await console.accessibility_problems() == []
    await dialog.get_by_role("button", name="Save").click()
    await expect(page.locator("aside .facts")).to_contain_text("$2.50")
    session = (await world.get(f"/v1/sessions/{session_id}")).json()
    assert session["tool_policy"] == {"add_*": "deny"}
    assert session["limits"]["session"] == {"max_cost_usd": 2.5, "max_tokens": None}
    assert session["client_tools"] == [METER]

    # Tokens with and without the right to answer.
    tokens = {}
    await page.get_by_role("button", name="Share").click()
    for label, may_answer in (("Reader", False), ("Harbour office", True)):
        await dialog.get_by_label("Label").fill(label)
        await dialog.get_by_label("May answer requests").set_checked(may_answer)
        await dialog.get_by_role("button", name="Create link").click()
        await expect(dialog.locator(".tokens li").filter(has_text=label)).to_be_visible()
        link = await dialog.locator(".secret code").last.inner_text()
        tokens[label] = link.split("?token=")[1]
    await page.keyboard.press("Escape")
    async with open_console(browser, server.url) as guest:
        await guest.sign_in(tokens["Reader"])
        await send(guest.page, "call: read_meter")
        card = request(guest.page, "Tool result required: read_meter")
        await expect(card).to_contain_text("Answering requires the permission action.resolve")
        await expect(card.get_by_role("button")).to_have_count(0)
    async with open_console(browser, server.url) as guest:
        await guest.sign_in(tokens["Harbour office"])
        card = request(guest.page, "Tool result required: read_meter")
        await card.get_by_label("Result", exact=True).fill("broken")
        await card.get_by_role("button", name="Return an error").click()
        await expect(guest.page.locator(".action.answered")).to_contain_text("Error returned by Harbour office")
        await expect(guest.page.get_by_text("✓ Completed")).to_be_visible()
    await expect(page.locator(".action.answered")).to_contain_text("Error returned by Harbour office")
    await expect(page.get_by_role("article", name="Input").locator(".sender")).to_have_text("Reader")

    # Usage of the workspace, and its daily limit.
    await console.load("/activity")
    usage = page.get_by_role("region", name="Usage", exact=True)
    await expect(usage.get_by_role("radio", name="Tokens")).to_be_checked()
    await expect(usage.locator(".figures")).to_contain_text("Unknown price")
    await expect(usage.get_by_role("img").locator("rect.series-1")).to_have_count(1)
    rows = usage.get_by_role("table", name="Usage by model").get_by_role("row")
    await expect(rows.last).to_contain_text(re.compile(r"demo.*Unknown price"))
    await usage.get_by_role("radio", name="Session").check()
    await expect(usage.get_by_role("link", name="Shared")).to_be_visible()
    await usage.get_by_role("radio", name="Key").check()
    await expect(usage.get_by_role("link", name="test")).to_be_visible()
    await console.load("/workspace")
    await page.get_by_role("button", name="Edit limit").click()
    await dialog.get_by_label("Cost in USD").fill("25")
    await dialog.get_by_role("button", name="Save").click()
    limit = page.locator(".card").filter(has_text="Daily limit")
    await expect(limit).to_contain_text(re.compile(r"\$25\.00.*tokens in"))
    assert (await world.get("/v1/workspace")).json()["limits"]["day"]["max_cost_usd"] == 25
