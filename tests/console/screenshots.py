"""`make screenshots`: every page of the console with a told story in it, for docs/console.md."""

import asyncio
import math
import tempfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from playwright.async_api import Browser, Page, Route, expect

from quarterdeck.db import embedded
from quarterdeck.db.migrate import migrate
from tests.console.browser import NARROW, WIDE, Scheme, Visitor, running, visiting
from tests.console.pictures import in_few_colours
from tests.console.story import Story, told
from tests.workers import working
from tests.world import serving

FOLDER = Path(__file__).parents[2] / "docs/screenshots"
SIZES = {"wide": (WIDE, 800), "narrow": (NARROW, 720)}
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
# The story took place a while ago, not this second.
LATER = timedelta(minutes=25)


async def _unfold(page: Page) -> None:
    await page.locator("summary").filter(has_text="rotated").click()


async def _ask_for_a_key(page: Page) -> None:
    await page.get_by_role("button", name="Create key").click()
    await page.get_by_role("dialog").get_by_label("Label").fill("Night shift")


async def _nothing(_: Page) -> None:
    pass


PREPARED: dict[str, Callable[[Page], Awaitable[None]]] = {"audit": _unfold, "key-create": _ask_for_a_key}


async def take_all(browser: Browser, url: str, story: Story) -> None:
    shots = story.pages | {"key-create": story.pages["keys"]}
    for size, (width, height) in SIZES.items():
        for scheme in SCHEMES:
            async with visiting(browser, url, width=width, height=height, scheme=scheme) as visitor:
                await visitor.page.clock.set_fixed_time(datetime.now(UTC) + LATER)
                await visitor.page.route("**/v1/activity*", _an_hour)
                await visitor.open()
                await visitor.heading("Sign in")
                await _take(browser, visitor, f"sign-in-{size}-{scheme}")
                await visitor.sign_in(story.key, "/workspace")
                for name, path in shots.items():
                    await visitor.settled(path)
                    await PREPARED.get(name, _nothing)(visitor.page)
                    await _take(browser, visitor, f"{name}-{size}-{scheme}")


async def _take(browser: Browser, visitor: Visitor, name: str) -> None:
    await expect(visitor.page.get_by_text("Loading")).to_have_count(0)
    taken = await visitor.page.screenshot(animations="disabled", caret="hide")
    (FOLDER / f"{name}.png").write_bytes(await in_few_colours(browser, taken))


async def _an_hour(route: Route) -> None:
    """To fill an hour takes an hour: these figures, and these only, are made up."""
    start = (datetime.now(UTC) + LATER).replace(second=0, microsecond=0) - timedelta(minutes=60)
    at = [(start + timedelta(minutes=minute)).isoformat().replace("+00:00", "Z") for minute in range(61)]
    inputs = [round(7 + 5 * math.sin(minute / 7) + 2 * math.cos(minute * 2.3)) for minute in range(60)]
    waits = [round(170 + 50 * math.sin(minute / 5) + 25 * math.cos(minute * 1.7)) for minute in range(60)]
    body: dict[str, Any] = {
        "since": at[0],
        "until": at[-1],
        "bucket_seconds": 60,
        "runs_by_state": {"queued": 1, "running": 4, "succeeded": 212, "failed": 9, "cancelled": 5},
        "inputs": [{"at": moment, "count": count} for moment, count in zip(at, inputs, strict=False)],
        "time_to_start": [
            {"at": moment, "runs": count, "p50_ms": wait, "p95_ms": round(2.4 * wait + 15 * (index % 7))}
            for index, (moment, count, wait) in enumerate(zip(at, inputs, waits, strict=False))
        ],
    }
    await route.fulfill(json=body)


async def _picture(url: str, database_url: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=30) as http:
        story = await told(database_url, http)
    async with running() as browser:
        await take_all(browser, url, story)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="qd-screenshots-") as folder:
        data = Path(folder) / "data"
        data.mkdir()
        with embedded.running(Path(folder) / "postgres") as database_url:
            migrate(database_url)
            with serving(database_url, data) as server, working(database_url, data):
                asyncio.run(_picture(server.url, database_url))


if __name__ == "__main__":
    main()
