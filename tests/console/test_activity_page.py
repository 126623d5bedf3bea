"""The charts: real runs in them, the same figures as tables, and what is shown when there are none."""

from typing import Any

import pytest
from playwright.async_api import Locator, expect

from tests.console.browser import NARROW, Visitor
from tests.workers import Worker, at_rest
from tests.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")


def figure(visitor: Visitor, name: str) -> Locator:
    return visitor.page.locator(".figures > div").filter(has=visitor.page.get_by_text(name, exact=True)).locator("dd")


async def test_charts_of_what_happened(visitor: Visitor, world: World, worker: Worker) -> None:
    page = visitor.page
    await page.clock.install()
    session_id = await world.new_session()
    await visitor.sign_in(world.key, "/activity")
    await expect(page.get_by_role("heading", name="Nothing happened in this time")).to_be_visible()
    assert await visitor.problems() == []
    for text in ("hello", "again\ndemo: fail"):
        await world.submit(session_id, text)
        await at_rest(world, session_id)
    # It looks by itself.
    await page.clock.fast_forward(20_000)
    await expect(figure(visitor, "Runs")).to_have_text("2")
    await expect(figure(visitor, "Inputs")).to_have_text("2")
    await expect(figure(visitor, "Failed")).to_have_text("50 %")
    chart = page.get_by_role("region", name="Runs by state").get_by_role("img")
    await expect(chart).to_have_attribute("aria-label", "0 queued, 0 running, 1 succeeded, 1 failed, 0 cancelled")
    for name in ("Inputs a minute", "Time to start"):
        drawing = page.get_by_role("region", name=name).get_by_role("img")
        await expect(drawing.locator("rect.series-1, circle.series-1").first).to_be_attached()
        assert "half within" in await told_by(drawing) or "a minute" in await told_by(drawing)

    await page.get_by_role("switch", name="Show as tables").check()
    row = page.get_by_role("table", name="Runs by state").get_by_role("row").filter(has_text="failed")
    await expect(row.get_by_role("cell")).to_have_text(["failed", "1"])
    await expect(chart).to_be_hidden()
    await page.set_viewport_size({"width": NARROW, "height": 800})
    assert await visitor.overflow() <= 0
    assert await visitor.problems() == []

    await page.get_by_text("7 days", exact=True).click()
    assert page.url.endswith("#/activity?minutes=10080")
    await page.reload()
    await expect(page.get_by_label("7 days")).to_be_checked()
    await expect(figure(visitor, "Runs")).to_have_text("2")


async def told_by(drawing: Locator) -> str:
    """What pointing at the moments of a chart tells, together."""
    return "\n".join(await drawing.locator("title").all_text_contents())


async def test_figures_that_cannot_be_had_again_stay(visitor: Visitor, world: World) -> None:
    page = visitor.page
    await world.submit(await world.new_session())
    await visitor.sign_in(world.key, "/activity")
    await expect(figure(visitor, "Active now")).to_have_text("1")
    fault: dict[str, Any] = {"error": {"code": "internal", "message": "The database is away."}}
    headers = {"X-Request-Id": "asked-in-vain", "Retry-After": "0"}
    await page.route("**/v1/activity*", lambda route: route.fulfill(status=503, json=fault, headers=headers))
    await page.get_by_text("6 hours", exact=True).click()
    await expect(page.get_by_role("alert")).to_contain_text("asked-in-vain")
    await expect(figure(visitor, "Active now")).to_have_text("1")
    await page.unroute("**/v1/activity*")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_role("alert")).to_have_count(0)
