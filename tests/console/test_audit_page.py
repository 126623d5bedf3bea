"""The Audit log and Workspace pages, and the members as a key sees them."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import expect

from quarterdeck.api.routes import OPERATIONS
from quarterdeck.core.actors import Permission
from quarterdeck.people import members, profiles
from quarterdeck.workspaces import service as workspaces
from tests.console.browser import ConsolePage
from tests.world import World

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]

# Date fields narrower than their text, and headings with more than one line.
CLIPPED = """
() => {
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const narrow = all("input[type=date]").filter((one) => one.clientWidth < 9.5 * rem);
  const broken = all("main h1, main h2, main th, main label").filter((one) => one.offsetHeight > 2 * rem);
  return [...narrow, ...broken].map((one) => one.outerHTML);
}
"""
OPERATOR_ACTIONS = {
    "create_workspace", "change_workspace", "add_member", "remove_member", "set_user", "create_account_link",
}  # fmt: skip
# Inputs are in the log of their session. The others change nothing of a workspace.
NOT_RECORDED = {
    "submit_input", "look_up_invitation", "look_up_device_code", "create_device_code", "redeem_device_code",
    "begin_sign_in",
}  # fmt: skip


async def test_filters_are_in_the_address_and_entries_expand(console: ConsolePage, world: World) -> None:
    page = console.page
    skill_id = await world.new_skill()
    for number in range(55):
        await world.post("/v1/skills", {"name": f"skill-{number}"})
    await console.sign_in(world.key, "/audit")
    entries = page.get_by_role("main").locator("details")
    await expect(page.get_by_role("status").filter(has_text="50 entries so far")).to_be_visible()
    await expect(entries.first).to_contain_text("created the skill “skill-54”")
    await page.get_by_role("button", name="Show older entries").click()
    await expect(page.get_by_role("status").filter(has_text="58 entries, newest first")).to_be_visible()
    await expect(entries.nth(50).locator("summary")).to_be_focused()
    await expect(entries.last).to_contain_text("Operator created the workspace “Test”")

    await page.get_by_label("Action").select_option(label="Key created")
    await expect(entries).to_have_count(1)
    assert page.url.endswith("#/audit?action=create_api_key")
    await page.get_by_label("From").fill((datetime.now(UTC) + timedelta(days=2)).date().isoformat())
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="No matching entries")).to_be_visible()
    assert await console.accessibility_problems() == []
    await page.get_by_role("main").get_by_role("button", name="Clear filters").last.click()
    await expect(entries).to_have_count(50)
    # No field is clipped and no heading breaks at a common width.
    await console.resize(1360)
    assert await page.evaluate(CLIPPED) == []

    await page.get_by_label("Object ID", exact=True).fill(skill_id)
    await page.keyboard.press("Enter")
    await expect(entries).to_have_count(1)
    await entries.locator("summary").focus()
    await page.keyboard.press("Enter")
    await expect(entries.get_by_text("create_skill")).to_be_visible()
    await expect(entries.get_by_text("127.0.0.1")).to_be_visible()
    assert await console.accessibility_problems() == []
    await page.reload()
    await expect(page.get_by_label("Object ID", exact=True)).to_have_value(skill_id)
    await expect(entries).to_have_count(1)
    await page.get_by_label("Object ID", exact=True).fill("not an id")
    await page.keyboard.press("Enter")
    # The user's mistake: trying again does not help, and nobody needs the request ID.
    await expect(page.get_by_role("alert")).to_be_visible()
    assert await page.get_by_role("alert").get_by_role("button").count() == 0
    await expect(page.get_by_label("Object ID", exact=True)).to_have_value("not an id")


async def test_filter_by_user_and_by_object(console: ConsolePage, world: World) -> None:
    page = console.page
    session_id = await world.new_session()
    await world.patch(f"/v1/sessions/{session_id}", {"title": "Renamed"})
    ((owner,),) = await world.fetch("SELECT owner_id FROM workspaces WHERE id = %s", world.workspace_id)
    await console.sign_in(world.key, f"/audit?user_id={owner}")
    entries = page.get_by_role("main").locator("details")
    await expect(entries).to_have_count(2)
    await expect(page.get_by_label("User")).to_have_value(str(owner))
    await expect(page.get_by_label("User").locator("option:checked")).to_contain_text("@example.com")
    await expect(entries.first).to_contain_text("changed the session “Renamed”")
    await expect(entries.last).to_contain_text("created the session “Renamed”")
    await entries.first.locator("summary").click()
    await expect(entries.first).to_contain_text("title")
    await entries.first.get_by_role("button", name="Show history").click()
    await expect(page.get_by_label("Object ID", exact=True)).to_have_value(session_id)
    await expect(page.get_by_label("User")).to_have_value("")
    await expect(entries).to_have_count(2)
    await entries.last.locator("summary").click()
    await entries.last.get_by_role("link", name="Open").click()
    await expect(page).to_have_url(re.compile(f"#/sessions/{session_id}$"))
    await world.post(f"/v1/sessions/{session_id}/fork", {})
    await console.open("/audit?action=fork_session")
    await entries.locator("summary").click()
    await expect(entries.locator("dt")).to_contain_text(["Forked from", "Before event ID"])
    await expect(entries.get_by_role("link", name=session_id)).to_be_visible()


async def test_every_action_is_in_the_filter(console: ConsolePage, world: World) -> None:
    await console.sign_in(world.key, "/audit")
    options = console.page.get_by_label("Action").locator("option")
    await expect(options.first).to_have_text("Any action")
    offered = {await one.get_attribute("value") for one in await options.all()} - {""}
    changes = {one.name for one in OPERATIONS if one.method != "GET"} - NOT_RECORDED
    assert (changes | OPERATOR_ACTIONS) - offered == set()


async def test_workspace_and_members(console: ConsolePage, world: World) -> None:
    async with await world.connect() as connection:
        await workspaces.configure_workspace(connection, world.workspace_id, max_key_days=30)
        for email in (f"ann.{world.workspace_id}@example.com", f"bob.{world.workspace_id}@example.com"):
            await members.add_by_operator(connection, world.workspace_id, email)
            await profiles.name_by_operator(connection, email, email.partition(".")[0].title())
        await members.remove_by_operator(connection, world.workspace_id, email)
    page = console.page
    await console.sign_in(world.key, "/workspace")
    await expect(page.get_by_role("main")).to_contain_text("30 days")
    await expect(page.get_by_role("main")).to_contain_text(str(world.workspace_id))
    await page.get_by_role("link", name="Members").click()
    current = page.get_by_role("table", name="Members", exact=True)
    await expect(current.get_by_role("row").filter(has_text="Owner")).to_contain_text("@example.com")
    await expect(current.get_by_role("row").filter(has_text="Ann")).to_contain_text("Member")
    await expect(current.get_by_role("row").filter(has_text="Bob")).to_have_count(0)
    await expect(page.get_by_role("table", name="Former members").get_by_role("row")).to_contain_text(["Left", "Bob"])

    await page.get_by_role("link", name="Workspace").click()
    await page.get_by_role("button", name="Edit retention").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Events").fill("14")
    await dialog.get_by_label("Idempotency receipts").fill("10")
    await dialog.get_by_role("button", name="Save").click()
    card = page.locator(".card").filter(has_text="Retention")
    await expect(card).to_contain_text("Events14 days")
    await expect(card).to_contain_text("RunsForever (default)")
    kept = (await world.get("/v1/workspace")).json()["retention"]
    assert {kind: days for kind, days in kept.items() if days} == {"event_days": 14, "receipt_days": 10}


async def test_retention_with_a_key_that_may_not_delete_conversations(console: ConsolePage, world: World) -> None:
    page = console.page
    await console.sign_in(await world.new_key(Permission.WORKSPACE_READ, Permission.KEY_MANAGE), "/workspace")
    await page.get_by_role("button", name="Edit retention").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("session.manage")
    await expect(dialog.get_by_label("Events")).to_have_count(0)
    await dialog.get_by_label("Webhook deliveries").fill("14")
    await dialog.get_by_role("button", name="Save").click()
    await expect(page.locator(".card").filter(has_text="Retention")).to_contain_text("Webhook deliveries14 days")
