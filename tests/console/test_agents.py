"""The pages of agents, and sessions with an agent."""

import asyncio
import re

import pytest
from playwright.async_api import Locator, Route, expect

from quarterdeck.core.actors import Permission
from tests.console.browser import NARROW, ConsolePage
from tests.console.test_transcript import append
from tests.world import World, bundle

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("worker"), pytest.mark.long]

SCHEMA = '{"type": "object", "properties": {"urgency": {"type": "string"}}}'
TOOL = '[{"name": "page_duty", "description": "Calls a person.", "parameters": {"type": "object"}}]'


def dialog(console: ConsolePage) -> Locator:
    return console.page.get_by_role("dialog")


async def new_agent(world: World, name: str = "Triage", **version: object) -> str:
    answer = await world.post("/v1/agents", {"name": name, "version": version})
    assert answer.status_code == 201, answer.text
    agent_id: str = answer.json()["id"]
    return agent_id


async def _create(console: ConsolePage, world: World, skill_id: str) -> str:
    """Fill in every field of the form."""
    page = console.page
    await console.sign_in(world.key, "/agents")
    await expect(page.get_by_role("heading", name="No agents yet")).to_be_visible()
    await page.get_by_role("button", name="New agent").click()
    await console.heading("New agent")
    await expect(page.get_by_label("Name")).to_be_focused()
    await page.get_by_label("Name").fill("Triage")
    await page.get_by_label("Model").fill("nonsense:model")
    await page.get_by_label("Temperature").fill("0.5")
    await page.get_by_label("Instructions").fill("Sort the tickets.")
    await page.get_by_label("Sandbox").select_option("Off")
    await page.get_by_role("checkbox", name="demo").check()
    await page.get_by_label("Pinned version of demo").fill("1")
    await page.get_by_role("checkbox", name="closed").check()
    await page.get_by_role("button", name="Add rule").click()
    await page.get_by_label("Tool or prefix").fill("closed__*")
    await page.get_by_label("Rule", exact=True).select_option("Deny")
    await page.get_by_label("Client tools").fill(TOOL)
    await page.get_by_label("Fallbacks").fill("openai:gpt-5\n\n demo ")
    await page.get_by_label("Cost in USD").first.fill("2")
    # Invalid JSON is not sent.
    await page.get_by_label("Output schema").fill("[]")
    await page.get_by_role("button", name="Create agent").click()
    assert "Enter a JSON object" in await page.get_by_label("Output schema").evaluate("(one) => one.validationMessage")
    await page.get_by_label("Output schema").fill(SCHEMA)
    await page.get_by_role("button", name="Create agent").click()
    await expect(page.get_by_role("alert")).to_contain_text("nonsense")
    await page.get_by_label("Model").fill("demo")
    await page.get_by_role("button", name="Create agent").click()
    await console.heading("Triage")
    (agent,) = (await world.get("/v1/agents")).json()["items"]
    version = (await world.get(f"/v1/agents/{agent['id']}/versions/1")).json()
    assert (version["model"], version["fallback_models"]) == ("demo", ["openai:gpt-5", "demo"])
    assert version["settings"]["temperature"] == 0.5
    assert version["skills"] == [{"skill_id": skill_id, "version": 1}]
    assert version["tool_policy"] == {"closed__*": "deny"}
    assert version["limits"]["run"]["max_cost_usd"] == 2
    assert (version["sandbox"], version["instructions"]) == (None, "Sort the tickets.")
    assert (len(version["mcp_servers"]), version["client_tools"][0]["name"]) == (1, "page_duty")
    assert version["output_schema"]["properties"] == {"urgency": {"type": "string"}}
    agent_id: str = agent["id"]
    return agent_id


async def test_life_of_an_agent(console: ConsolePage, world: World) -> None:
    page = console.page
    skill_id = await world.new_skill()
    assert (await world.push(skill_id, bundle("weather"))).status_code == 201
    await world.new_mcp_server(name="closed")
    agent_id = await _create(console, world, skill_id)
    main = page.get_by_role("main")
    await expect(main).to_contain_text("Latest (auto-update), now version 1")
    await expect(page.get_by_role("heading", name="No runs in this time")).to_be_visible()

    # The next version starts with the content of the one in use.
    await page.get_by_role("button", name="New version").click()
    await console.heading("New version of Triage")
    await expect(page.get_by_label("Instructions")).to_have_value("Sort the tickets.")
    await expect(page.get_by_role("checkbox", name="closed")).to_be_checked()
    await page.get_by_label("Instructions").fill("Sort the tickets.\nBe brief.")
    await page.get_by_label("Client tools").fill("")
    await page.get_by_role("button", name="Remove rule").click()
    await page.get_by_role("checkbox", name="closed").uncheck()
    await page.get_by_role("button", name="Create version 2").click()
    await console.heading("Triage")
    await expect(page.get_by_role("row").filter(has_text="Version 2")).to_contain_text("In use")

    await page.get_by_role("link", name="Since version 1").click()
    await console.heading("Triage: version 1 to 2")
    await expect(page.get_by_text("4 fields changed")).to_be_visible()
    await expect(main.get_by_role("link", name="closed")).to_be_visible()
    await expect(page.get_by_role("table", name="Changes of Instructions")).to_contain_text("Be brief.")
    await expect(page.get_by_role("table", name="Changes of Tool policy")).to_contain_text("closed__*")
    await page.get_by_role("link", name="Triage").click()

    await page.get_by_role("button", name="Roll back to version 1").click()
    await dialog(console).get_by_role("button", name="Use version 1").click()
    await expect(main).to_contain_text("Pinned to version 1")
    assert (await world.get(f"/v1/agents/{agent_id}")).json()["default_version"] == 1
    await page.get_by_role("link", name="Version 1", exact=True).click()
    await console.heading("Triage, version 1")
    await expect(main.get_by_role("link", name="closed")).to_be_visible()
    await expect(main).to_contain_text("page_duty")
    await page.get_by_role("link", name="Triage").click()
    await page.get_by_role("button", name="Use latest").click()
    await dialog(console).get_by_role("button", name="Use latest").click()
    await expect(main).to_contain_text("Latest (auto-update), now version 2")

    await page.get_by_role("button", name="Rename").click()
    await dialog(console).get_by_label("Name").fill("Ticket triage")
    await dialog(console).get_by_role("button", name="Rename").click()
    await console.heading("Ticket triage")
    await page.get_by_role("button", name="Archive").click()
    await dialog(console).get_by_role("button", name="Archive").click()
    await expect(main).to_contain_text("Existing sessions keep this agent")
    await expect(page.get_by_role("button", name="New version")).to_have_count(0)
    await expect(page.get_by_role("button", name="New session")).to_have_count(0)
    await page.get_by_role("link", name="All agents").click()
    await expect(page.get_by_role("heading", name="No agents yet")).to_be_visible()
    await page.get_by_label("Show archived").check()
    await expect(page.get_by_role("link", name="Ticket triage")).to_be_visible()

    await page.get_by_role("button", name="Sign out").click()
    await console.sign_in(await world.new_key(Permission.WORKSPACE_READ), "/agents")
    await expect(page.get_by_role("button", name="New agent")).to_be_disabled()
    await console.load(f"/agents/{agent_id}")
    assert await main.get_by_role("button").all_text_contents() == ["Copy", "Compare"]
    await console.load(f"/agents/{agent_id}/edit")
    await expect(page.get_by_role("heading", name="No access to this form")).to_be_visible()


async def test_session_with_an_agent(console: ConsolePage, world: World) -> None:
    page = console.page
    agent_id = await new_agent(world, instructions="Sort the tickets.", settings={"temperature": 0.5}, sandbox=None)
    await console.sign_in(world.key, f"/agents/{agent_id}")
    await page.get_by_role("button", name="New session").click()
    form = page.get_by_role("dialog", name="New session")
    await expect(form.get_by_label("Agent", exact=True)).to_have_value(agent_id)
    await expect(form.get_by_label("Instructions")).to_have_value("Sort the tickets.")
    await expect(form.get_by_label("Instructions")).to_be_disabled()
    assert await console.accessibility_problems() == []
    await form.get_by_label("Title").fill("Ticket 4711")
    await form.get_by_role("button", name="Override Model settings").click()
    await form.get_by_label("Temperature").fill("1")
    async with page.expect_request(lambda request: request.method == "POST") as request:
        await form.get_by_role("button", name="Create").click()
    sent = (await request.value).post_data_json
    settings = {"temperature": 1, "max_output_tokens": None, "reasoning_effort": None}
    agent = {"agent_id": agent_id, "version": None}
    assert sent == {"title": "Ticket 4711", "agent": agent, "settings": settings}
    await console.heading("Ticket 4711")
    details = page.get_by_role("complementary")
    await expect(details).to_contain_text("Triage v1")
    await expect(details).to_contain_text("OverriddenModel settings")

    # The agent changes; the session follows it, except in the settings.
    newer = {"instructions": "Be brief.", "settings": {"temperature": 0.1}, "sandbox": None}
    assert (await world.post(f"/v1/agents/{agent_id}/versions", newer)).status_code == 201
    await page.get_by_label("Message").fill("hello")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("✓ Completed")).to_be_visible()
    await expect(page.locator(".end").get_by_role("link", name="Triage v2").first).to_be_visible()
    await page.reload()
    await expect(details).to_contain_text("Triage v2")
    await expect(details).to_contain_text("Be brief.")
    await page.get_by_role("button", name="Edit session").click()
    form = page.get_by_role("dialog", name="Edit session")
    await expect(form.get_by_label("Temperature")).to_have_value("1")
    await form.get_by_role("button", name="Follow agent again Model settings").click()
    await expect(form.get_by_label("Temperature")).to_have_value("0.1")
    await expect(form.get_by_label("Temperature")).to_be_disabled()
    await form.get_by_role("button", name="Override Instructions").click()
    await form.get_by_label("Instructions").fill("Be polite.")
    async with page.expect_request(lambda request: request.method == "PATCH") as request:
        await form.get_by_role("button", name="Save").click()
    assert (await request.value).post_data_json == {"instructions": "Be polite.", "inherit": ["settings"]}
    await expect(details).to_contain_text("OverriddenInstructions")
    session_id = page.url.rsplit("/", 1)[1]
    session = (await world.get(f"/v1/sessions/{session_id}")).json()
    assert (session["overrides"], session["settings"]["temperature"]) == (["instructions"], 0.1)

    # A pinned version, then no agent at all: the values stay.
    await page.get_by_role("button", name="Edit session").click()
    await expect(form.get_by_label("Temperature")).to_have_value("0.1")
    await form.get_by_label("Version of the agent").fill("1")
    await form.get_by_label("Version of the agent").press("Tab")
    await expect(form.get_by_label("Temperature")).to_have_value("0.5")
    await expect(form.get_by_label("Instructions")).to_have_value("Be polite.")
    await form.get_by_role("button", name="Save").click()
    await expect(details).to_contain_text("Triage v1 (pinned)")
    # The list of agents arrives after the choice.
    await new_agent(world, name="Other")
    lists: asyncio.Queue[Route] = asyncio.Queue()
    await page.route("**/v1/agents?*", lists.put_nowait, times=1)
    await page.get_by_role("button", name="Edit session").click()
    await expect(form.get_by_label("Temperature")).to_have_value("0.5")
    await form.get_by_label("Agent", exact=True).select_option("No agent")
    await expect(form.get_by_label("Temperature")).to_be_enabled()
    await (await lists.get()).continue_()
    await expect(form.get_by_label("Agent", exact=True).locator("option")).to_have_count(3)
    async with page.expect_request(lambda request: request.method == "PATCH") as request:
        await form.get_by_role("button", name="Save").click()
    assert (await request.value).post_data_json == {"agent": None}
    await expect(details).not_to_contain_text("Triage")
    session = (await world.get(f"/v1/sessions/{session_id}")).json()
    assert (session["agent"], session["instructions"], session["settings"]["temperature"]) == (None, "Be polite.", 0.5)

    await console.load(f"/agents/{agent_id}")
    stats = page.get_by_role("table", name="Statistics by version").get_by_role("row").filter(has_text="Version 2")
    await expect(stats).to_contain_text(re.compile("Version 2.*1.*0"))


async def test_events_of_tools_and_context(console: ConsolePage, world: World) -> None:
    page = console.page
    session_id = await world.new_session()
    run_id = "0199d2a0-0000-7000-8000-000000000002"
    image = {"sha256": "0" * 64, "media_type": "image/png", "bytes": 12_500}
    await append(
        world,
        session_id,
        [
            ("input.accepted", run_id, {"input_id": "a", "text": "Draw it"}),
            ("run.started", run_id, {"attempt": 1}),
            ("mcp.unavailable", run_id, {"server_id": run_id, "name": "tickets", "reason": "No answer\u202e in 10 s."}),
            ("context.compacted", run_id, {"dropped_turns": 12, "summary": "They asked for **charts**."}),
            ("tool.call", run_id, {"call_id": "t", "name": "charts__draw", "arguments": {}}),
            ("tool.result", run_id, {"call_id": "t", "name": "charts__draw", "text": "Done.", "images": [image]}),
            ("message", run_id, {"role": "assistant", "text": '{"a": "*b*"}', "mismatch": "$: \u202e'c' is missing."}),
            ("message", run_id, {"role": "assistant", "text": '{"c": "*d*"}'}),
            ("run.succeeded", run_id, {}),
        ],
    )
    await console.sign_in(world.key, f"/sessions/{session_id}")
    wrong, right = (page.get_by_role("article", name="Answer").filter(has_text=text) for text in ("*b*", "*d*"))
    await expect(wrong).to_contain_text("Does not match the output schema: $: ⟨U+202E⟩'c' is missing.")
    await expect(right.locator("pre")).to_have_text('{"c": "*d*"}')
    await expect(right).not_to_contain_text("output schema")
    note = page.get_by_text("The tools of the MCP server tickets are not available: No answer⟨U+202E⟩ in 10 s.")
    await expect(note).to_be_visible()
    summary = page.get_by_text("They asked for **charts**.")
    await expect(summary).to_be_hidden()
    await page.get_by_text("12 earlier turns summarised to fit the model's context.").click()
    await expect(summary).to_be_visible()
    await page.get_by_text("charts__draw").click()
    await expect(page.get_by_text("image/png, 12.2 KB")).to_be_visible()
    await console.resize(NARROW)
    assert await console.overflow() <= 0
    assert await console.accessibility_problems() == []
