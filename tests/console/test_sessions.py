"""The list of sessions: made, found, followed, put away."""

import pytest
from playwright.async_api import expect

from quarterdeck.core.actors import Permission
from tests.console.browser import NARROW, Visitor, visiting
from tests.workers import started
from tests.world import Server, World, bundle

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_first_session_is_made_with_a_skill_and_opens(visitor: Visitor, world: World) -> None:
    page = visitor.page
    skill_id = await world.new_skill()
    for text in ("one", "two"):
        assert (await world.push(skill_id, bundle("weather", **{"notes.txt": text}))).status_code == 201
    await visitor.sign_in(world.key)
    await expect(page.get_by_role("heading", name="No sessions yet")).to_be_visible()
    await page.locator(".empty").get_by_role("button", name="New session").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Title").fill("Plan the release")
    await dialog.get_by_label("Model").fill("nonsense\u2066")
    await dialog.get_by_label("Instructions").fill("Be brief.\nBe kind.")
    await dialog.get_by_role("checkbox", name="demo").check()
    await dialog.get_by_label("Pinned version of demo").fill("1")
    assert await visitor.problems() == []
    await dialog.get_by_role("button", name="Create").click()
    # What the server refuses is told, and nothing that was typed is lost.
    await expect(dialog.get_by_role("alert")).to_contain_text("Request ")
    await expect(dialog.get_by_label("Instructions")).to_have_value("Be brief.\nBe kind.")
    await dialog.get_by_label("Model").fill("demo")
    await page.keyboard.press("Enter")
    await visitor.heading("Plan the release")
    await expect(page.get_by_role("link", name="demo")).to_be_visible()
    (session,) = (await world.get("/v1/sessions")).json()["items"]
    made = (await world.get(f"/v1/sessions/{session['id']}")).json()
    assert (made["model"], made["instructions"]) == ("demo", "Be brief.\nBe kind.")
    assert made["skills"] == [{"skill_id": skill_id, "version": 1}]


async def test_it_is_searched_and_the_search_is_in_the_address(visitor: Visitor, world: World) -> None:
    page = visitor.page
    for title in ("Plan the release", "100 % sure", "Release notes", "Something else"):
        await world.post("/v1/sessions", {"title": title})
    await visitor.sign_in(world.key, "/sessions")
    rows = page.get_by_role("table").get_by_role("link")
    await expect(rows).to_have_text(["Something else", "Release notes", "100 % sure", "Plan the release"])
    await page.get_by_label("Search by title").fill("release")
    await expect(rows).to_have_text(["Release notes", "Plan the release"])
    assert page.url.endswith("#/sessions?search=release")
    await page.reload()
    await expect(rows).to_have_text(["Release notes", "Plan the release"])
    await expect(page.get_by_label("Search by title")).to_have_value("release")
    await page.get_by_label("Search by title").fill("no such thing")
    await expect(page.get_by_role("heading", name="No session is called that")).to_be_visible()
    await page.get_by_label("Search by title").fill("")
    await expect(rows).to_have_count(4)


@pytest.mark.usefixtures("worker")
async def test_an_archived_session_lets_its_run_be_cancelled(visitor: Visitor, world: World) -> None:
    session_id = await world.new_session()
    await world.submit(session_id, "demo: slow 60")
    await started(world, session_id)
    await world.patch(f"/v1/sessions/{session_id}", {"archived": True})
    await visitor.sign_in(world.key, f"/sessions/{session_id}")
    await expect(visitor.page.get_by_text("takes no input")).to_be_visible()
    assert await visitor.page.get_by_label("Your message").count() == 0
    await visitor.page.get_by_role("button", name="Cancel the run").click()
    await expect(visitor.page.get_by_text("■ The run was cancelled.")).to_be_visible()


@pytest.mark.usefixtures("worker")
async def test_the_list_follows_what_happens_and_keeps_focus_and_pages(visitor: Visitor, world: World) -> None:
    page = visitor.page
    oldest = await world.new_session()
    for _ in range(55):
        await world.new_session()
    await visitor.sign_in(world.key, "/sessions")
    links = page.get_by_role("table").get_by_role("link")
    await expect(links).to_have_count(50)
    await page.get_by_role("button", name="Show more").click()
    await expect(links).to_have_count(56)
    await expect(page.get_by_role("button", name="Show more")).to_be_hidden()
    await links.last.focus()
    before = await page.evaluate("document.activeElement.getBoundingClientRect().top")
    row = page.get_by_role("row").filter(has=page.locator(f'a[href="#/sessions/{oldest}"]'))
    await expect(row).to_contain_text("idle")
    await world.submit(oldest, "demo: slow 60")
    await started(world, oldest)
    await expect(row).to_contain_text("running")
    await world.patch(f"/v1/sessions/{oldest}", {"title": "Renamed elsewhere"})
    await world.new_session()
    await expect(row).to_contain_text("Renamed elsewhere")
    await expect(links).to_have_count(57)
    await expect(links.last).to_be_focused()
    assert abs(await page.evaluate("document.activeElement.getBoundingClientRect().top") - before) < 5
    await world.delete(f"/v1/sessions/{oldest}")
    await expect(links).to_have_count(56)


async def test_renamed_archived_brought_back_and_deleted_by_its_name(visitor: Visitor, world: World) -> None:
    page = visitor.page
    session_id = await world.new_session()
    await visitor.sign_in(world.key, f"/sessions/{session_id}")
    await visitor.heading("Untitled session")

    async def choose(entry: str) -> None:
        await page.get_by_role("button", name="More", exact=True).click()
        await page.get_by_role("button", name=entry).click()

    await choose("Rename…")
    await page.get_by_label("Title").fill("My session")
    await page.keyboard.press("Enter")
    await visitor.heading("My session")
    await expect(page.get_by_role("heading", name="My session")).to_be_focused()
    await page.get_by_label("Your message").fill("half a thought")
    await choose("Archive…")
    await page.get_by_role("dialog").get_by_role("button", name="Archive").click()
    await expect(page.get_by_text("takes no input")).to_be_visible()
    await page.get_by_role("link", name="Sessions").click()
    await expect(page.get_by_role("heading", name="No sessions yet")).to_be_visible()
    await page.get_by_role("switch", name="Archived ones").check()
    await page.get_by_role("link", name="My session").click()
    await choose("Bring back…")
    await page.get_by_role("dialog").get_by_role("button", name="Bring back").click()
    await expect(page.get_by_label("Your message")).to_have_value("half a thought")
    await choose("Delete…")
    dialog = page.get_by_role("dialog", name="Delete “My session”?")
    await dialog.get_by_role("button", name="Cancel").click()
    assert (await world.get(f"/v1/sessions/{session_id}")).status_code == 200
    await choose("Delete…")
    await dialog.get_by_role("button", name="Delete for good").click()
    await expect(page.get_by_role("status").filter(has_text="was deleted")).to_be_visible()
    await visitor.heading("Sessions")
    assert (await world.get(f"/v1/sessions/{session_id}")).status_code == 404


async def test_who_may_only_read_is_not_offered_more(visitor: Visitor, world: World, server: Server) -> None:
    page = visitor.page
    session_id = await world.new_session()
    await visitor.sign_in(await world.new_key(Permission.WORKSPACE_READ), "/sessions")
    await expect(page.get_by_role("button", name="New session")).to_be_disabled()
    await page.get_by_role("link", name="Untitled session").click()
    await expect(page.get_by_text("it lacks session.manage")).to_be_visible()
    assert await page.get_by_label("Your message").count() == 0
    assert await page.get_by_role("button", name="Share").count() == 0
    browser = page.context.browser
    assert browser
    async with visiting(browser, server.url, width=NARROW) as narrow:
        await narrow.sign_in(world.key, f"/sessions/{session_id}")
        await narrow.page.get_by_role("button", name="More", exact=True).click()
        await expect(narrow.page.get_by_role("button", name="Delete…")).to_be_in_viewport()
        assert await narrow.problems() == []
        assert await narrow.overflow() <= 0
