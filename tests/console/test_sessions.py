"""The list of sessions: create, search, live updates, archive, delete."""

import pytest
from playwright.async_api import expect

from quarterdeck.core.actors import Permission
from tests.console.browser import NARROW, ConsolePage, open_console
from tests.workers import at_rest, started
from tests.world import Server, World, bundle

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("worker")]


@pytest.mark.long
async def test_create_a_session_with_a_skill(console: ConsolePage, world: World) -> None:
    page = console.page
    skill_id = await world.new_skill("demo")
    for text in ("one", "two"):
        assert (await world.push(skill_id, bundle("weather", **{"notes.txt": text}))).status_code == 201
    await console.sign_in(world.key)
    await expect(page.get_by_role("heading", name="No sessions yet")).to_be_visible()
    await page.locator(".empty").get_by_role("button", name="New session").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Title").fill("Plan the release")
    await dialog.get_by_label("Model").fill("nonsense\u2066")
    await dialog.get_by_label("Instructions").fill("Be brief.\nBe kind.")
    await dialog.get_by_role("checkbox", name="demo").check()
    await dialog.get_by_label("Pinned version of demo").fill("1")
    await dialog.get_by_role("button", name="Create").click()
    # The error is shown and the form keeps its content.
    await expect(dialog.get_by_role("alert")).to_be_visible()
    await expect(dialog.get_by_label("Instructions")).to_have_value("Be brief.\nBe kind.")
    await dialog.get_by_label("Model").fill("demo")
    await page.keyboard.press("Enter")
    await console.heading("Plan the release")
    await expect(page.get_by_role("link", name="demo")).to_be_visible()
    (session,) = (await world.get("/v1/sessions")).json()["items"]
    made = (await world.get(f"/v1/sessions/{session['id']}")).json()
    assert (made["model"], made["instructions"]) == ("demo", "Be brief.\nBe kind.")
    assert made["skills"] == [{"skill_id": skill_id, "version": 1}]


@pytest.mark.long
async def test_search_last_run_and_last_activity(console: ConsolePage, world: World) -> None:
    page = console.page
    ids = [
        (await world.post("/v1/sessions", {"title": title})).json()["id"]
        for title in ("Plan the release", "100 % sure", "Release notes", "Something else")
    ]
    for session_id, text in zip(ids, ("Where is the lighthouse?", "lighthouse\ndemo: fail"), strict=False):
        await world.submit(session_id, text)
        await at_rest(world, session_id)
    await console.sign_in(world.key, "/sessions")
    rows = page.get_by_role("table").get_by_role("link")
    await expect(rows).to_have_text(["Something else", "Release notes", "100 % sure", "Plan the release"])
    await page.get_by_label("Search sessions").fill("release")
    await expect(rows).to_have_text(["Release notes", "Plan the release"])
    assert page.url.endswith("#/sessions?search=release")
    await page.reload()
    await expect(rows).to_have_text(["Release notes", "Plan the release"])
    await expect(page.get_by_label("Search sessions")).to_have_value("release")
    await page.get_by_label("Search sessions").fill("no such thing")
    await expect(page.get_by_role("heading", name="No matching sessions")).to_be_visible()
    await page.get_by_label("Search sessions").fill("")
    await expect(rows).to_have_count(4)
    for title, state in (("Plan the release", "Completed"), ("100 % sure", "Failed"), ("Something else", "No runs")):
        await expect(page.get_by_role("row").filter(has_text=title)).to_contain_text(state)
    (last,) = [one for one in (await world.get("/v1/sessions")).json()["items"] if one["id"] == ids[0]]
    activity = page.get_by_role("row").filter(has_text="Plan the release").locator("td.activity time")
    await expect(activity).to_have_attribute("datetime", last["last_activity_at"])
    await expect(page.get_by_role("columnheader")).to_have_text(
        ["Title", "Last run", "Last activity", "Model", "Created", "Created by"]
    )

    await page.get_by_label("Search sessions").fill("lighthouse")
    await expect(page.get_by_role("heading", name="No matching sessions")).to_be_visible()
    await page.get_by_role("radio", name="Conversations").check()
    await expect(rows).to_have_text(["100 % sure", "Plan the release"])
    assert page.url.endswith("#/sessions?search=lighthouse&in=conversations")
    await page.reload()
    await expect(rows).to_have_count(2)
    await page.get_by_role("radio", name="Titles").check()
    await expect(page.get_by_text("No session title contains this text.")).to_be_visible()


@pytest.mark.long
async def test_run_of_an_archived_session_can_be_cancelled(console: ConsolePage, world: World) -> None:
    session_id = await world.new_session()
    await world.submit(session_id, "demo: slow 60")
    await started(world, session_id)
    await world.patch(f"/v1/sessions/{session_id}", {"archived": True})
    await console.sign_in(world.key, f"/sessions/{session_id}")
    await expect(console.page.get_by_text("This session is archived.")).to_be_visible()
    assert await console.page.get_by_label("Message").count() == 0
    await console.page.get_by_role("button", name="Cancel run").click()
    await expect(console.page.get_by_text("■ Cancelled")).to_be_visible()


@pytest.mark.long
async def test_list_updates_and_keeps_focus_and_pages(console: ConsolePage, world: World) -> None:
    page = console.page
    oldest = await world.new_session()
    for _ in range(55):
        await world.new_session()
    await console.sign_in(world.key, "/sessions")
    links = page.get_by_role("table").get_by_role("link")
    await expect(links).to_have_count(50)
    await page.get_by_role("button", name="Show more").click()
    await expect(links).to_have_count(56)
    await expect(page.get_by_role("button", name="Show more")).to_be_hidden()
    await links.last.focus()
    before = await page.evaluate("document.activeElement.getBoundingClientRect().top")
    row = page.get_by_role("row").filter(has=page.locator(f'a[href="#/sessions/{oldest}"]'))
    await expect(row).to_contain_text("No runs")
    await world.submit(oldest, "demo: slow 60")
    await started(world, oldest)
    await expect(row).to_contain_text("Running")
    await world.patch(f"/v1/sessions/{oldest}", {"title": "Renamed elsewhere"})
    await world.new_session()
    await expect(row).to_contain_text("Renamed elsewhere")
    await expect(links).to_have_count(57)
    await expect(links.last).to_be_focused()
    assert abs(await page.evaluate("document.activeElement.getBoundingClientRect().top") - before) < 5
    await world.delete(f"/v1/sessions/{oldest}")
    await expect(links).to_have_count(56)


@pytest.mark.long
async def test_rename_archive_unarchive_and_delete(console: ConsolePage, world: World) -> None:
    page = console.page
    session_id = await world.new_session()
    await console.sign_in(world.key, f"/sessions/{session_id}")
    await console.heading("Untitled session")

    async def choose(entry: str) -> None:
        await page.get_by_role("button", name="More", exact=True).click()
        await page.get_by_role("button", name=entry).click()

    await choose("Rename…")
    await page.get_by_label("Title").fill("My session")
    await page.keyboard.press("Enter")
    await console.heading("My session")
    await expect(page.get_by_role("heading", name="My session")).to_be_focused()
    await page.get_by_label("Message").fill("half a thought")
    await choose("Archive…")
    await page.get_by_role("dialog").get_by_role("button", name="Archive").click()
    await expect(page.get_by_text("This session is archived.")).to_be_visible()
    await page.get_by_role("link", name="Sessions", exact=True).click()
    await expect(page.get_by_role("heading", name="No sessions yet")).to_be_visible()
    await page.get_by_role("switch", name="Show archived").check()
    await page.get_by_role("link", name="My session").click()
    await choose("Unarchive…")
    await page.get_by_role("dialog").get_by_role("button", name="Unarchive").click()
    await expect(page.get_by_label("Message")).to_have_value("half a thought")
    await choose("Delete…")
    dialog = page.get_by_role("dialog", name="Delete “My session”?")
    await dialog.get_by_role("button", name="Cancel").click()
    assert (await world.get(f"/v1/sessions/{session_id}")).status_code == 200
    await choose("Delete…")
    await dialog.get_by_role("button", name="Delete session").click()
    await expect(page.get_by_role("status").filter(has_text="was deleted")).to_be_visible()
    await console.heading("Sessions")
    assert (await world.get(f"/v1/sessions/{session_id}")).status_code == 404


@pytest.mark.long
async def test_read_only_key_has_no_actions(console: ConsolePage, world: World, server: Server) -> None:
    page = console.page
    session_id = await world.new_session()
    await console.sign_in(await world.new_key(Permission.WORKSPACE_READ), "/sessions")
    await expect(page.get_by_role("button", name="New session")).to_be_disabled()
    await page.get_by_role("link", name="Untitled session").click()
    await expect(page.get_by_text("your key does not have the permission session.manage")).to_be_visible()
    assert await page.get_by_label("Message").count() == 0
    assert await page.get_by_role("button", name="Share").count() == 0
    browser = page.context.browser
    assert browser
    async with open_console(browser, server.url, width=NARROW) as narrow:
        await narrow.sign_in(world.key, f"/sessions/{session_id}")
        await narrow.page.get_by_role("button", name="More", exact=True).click()
        await expect(narrow.page.get_by_role("button", name="Delete…")).to_be_in_viewport()
        assert await narrow.accessibility_problems() == []
        assert await narrow.overflow() <= 0
