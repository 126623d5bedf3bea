"""The Activity page."""

import re
from typing import Any

import pytest
from playwright.async_api import Locator, expect

from tests.console.browser import NARROW, ConsolePage
from tests.workers import at_rest
from tests.world import World

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("worker"), pytest.mark.long]


def figure(console: ConsolePage, name: str) -> Locator:
    return console.page.locator(".figures > div").filter(has=console.page.get_by_text(name, exact=True)).locator("dd")


async def test_charts_and_tables(console: ConsolePage, world: World) -> None:
    page = console.page
    await page.clock.install()
    session_id = await world.new_session()
    await console.sign_in(world.key, "/activity")
    await expect(page.get_by_role("heading", name="No activity")).to_be_visible()
    assert await console.accessibility_problems() == []
    for text in ("hello", "again\ndemo: fail"):
        await world.submit(session_id, text)
        await at_rest(world, session_id)
    # Refreshed automatically.
    await page.clock.fast_forward(20_000)
    await expect(figure(console, "Runs")).to_have_text("2")
    await expect(figure(console, "Inputs")).to_have_text("2")
    await expect(figure(console, "Failed")).to_have_text("50%")
    chart = page.get_by_role("region", name="Runs by state").get_by_role("img")
    states = re.compile("0 queued, 0 running, 0 waiting, 1 completed, 1 failed, 0 cancelled$")
    await expect(chart).to_have_attribute("aria-label", states)
    for name in ("Inputs per minute", "Time to start"):
        drawing = page.get_by_role("region", name=name).get_by_role("img")
        await expect(drawing.locator("rect.series-1, circle.series-1").first).to_be_attached()
        assert "p50 " in await tooltips(drawing) or " per minute" in await tooltips(drawing)

    await page.get_by_role("switch", name="Show as tables").check()
    row = page.get_by_role("table", name="Runs by state").get_by_role("row").filter(has_text="Failed")
    await expect(row.get_by_role("cell")).to_have_text(["Failed", "1"])
    await expect(chart).to_be_hidden()
    await page.set_viewport_size({"width": NARROW, "height": 800})
    assert await console.overflow() <= 0
    assert await console.accessibility_problems() == []

    time_range = page.get_by_role("group", name="Time range")
    await time_range.get_by_role("radio", name="7 days").check()
    assert page.url.endswith("#/activity?minutes=10080")
    await page.reload()
    await expect(time_range.get_by_label("7 days")).to_be_checked()
    await expect(figure(console, "Runs")).to_have_text("2")


async def tooltips(drawing: Locator) -> str:
    """All tooltips of a chart."""
    return "\n".join(await drawing.locator("title").all_text_contents())


async def test_charts_stay_if_a_refresh_fails(console: ConsolePage, world: World) -> None:
    page = console.page
    await world.submit(await world.new_session(), "demo: slow 60")
    await console.sign_in(world.key, "/activity")
    await expect(figure(console, "Active now")).to_have_text("1")
    fault: dict[str, Any] = {"error": {"code": "internal", "message": "The database is away."}}
    headers = {"X-Request-Id": "request-1", "Retry-After": "0"}
    await page.route("**/v1/activity*", lambda route: route.fulfill(status=503, json=fault, headers=headers))
    await page.get_by_role("radio", name="6 hours").check()
    await expect(page.get_by_role("alert")).to_contain_text("request-1")
    await expect(figure(console, "Active now")).to_have_text("1")
    await page.unroute("**/v1/activity*")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_role("alert")).to_have_count(0)
