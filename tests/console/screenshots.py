"""`make screenshots`: pictures of every page with sample data, for docs/use/console.md. With names: only those."""

import asyncio
import math
import sys
import tempfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import httpx
from playwright.async_api import Browser, Page, expect

from quarterdeck.core.actors import Role
from quarterdeck.core.ids import first_id_at
from quarterdeck.core.settings import KeySettings, SignInSettings
from quarterdeck.people import invitations
from quarterdeck.server import embedded_postgres
from tests.console.browser import NARROW, WIDE, ConsolePage, Scheme, chromium, launch_browser, open_console
from tests.console.png_palette import reduce_colours
from tests.console.sample_files import add_files_session
from tests.console.sample_workspace import ADA, SampleWorkspace, create_sample
from tests.people import PASSWORD, invite
from tests.people import Browser as Profile
from tests.workers import working
from tests.world import PATIENT, World, migrate_for_tests, serving

FOLDER = Path(__file__).parents[2] / "docs/screenshots"
SIZES = {"wide": (WIDE, 800), "narrow": (NARROW, 720)}
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
# The pictures show the sample data as 25 minutes old.
LATER = timedelta(minutes=25)


_RUN = """
INSERT INTO runs (id, session_id, workspace_id, state, attempt, first_input, last_input, consumed_through, started_at,
                  finished_at)
VALUES (%s, %s, %s, %s, 1, 1, 1, 1, %s, %s)
"""
_INPUT = """
INSERT INTO session_events (session_id, run_id, workspace_id, type, created_at, data)
VALUES (%s, %s, %s, 'input.accepted', %s, '{"input_id": null, "text": "Next order"}')
"""


_USAGE = """
INSERT INTO run_usage
    (workspace_id, day, run_id, session_id, model, input_tokens, cached_tokens, output_tokens, cost_usd)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
_DAILY_USAGE = """
INSERT INTO daily_usage
SELECT workspace_id, day, 0, sum(input_tokens), sum(cached_tokens), sum(output_tokens), sum(cost_usd)
FROM run_usage WHERE workspace_id = %s GROUP BY workspace_id, day
ON CONFLICT DO NOTHING
"""


_AGENT_RUN = """
INSERT INTO runs (id, session_id, workspace_id, state, attempt, first_input, last_input, consumed_through, started_at,
                  finished_at, agent_id, agent_version, input_tokens, output_tokens, cost_usd)
VALUES (%s, %s, %s, %s, 1, 1, 1, 1, %s, %s, %s, %s, %s, %s, %s)
"""


async def _unfold(page: Page) -> None:
    await page.locator("summary").filter(has_text="rotated").click()


async def _ask_for_a_key(page: Page) -> None:
    await page.get_by_role("button", name="Create key").click()
    await page.get_by_role("dialog").get_by_label("Label").fill("Night shift")


async def _open_palette(page: Page) -> None:
    await page.get_by_role("button", name="Search").click()
    await expect(page.get_by_role("dialog").get_by_role("group", name="Recent sessions")).to_be_attached()


async def _scroll_to_usage(page: Page) -> None:
    await page.get_by_role("heading", name="Usage", exact=True).scroll_into_view_if_needed()
    await page.evaluate("document.querySelector('.usage').scrollIntoView()")


async def _open_a_request(page: Page) -> None:
    await page.get_by_role("button", name="read_meter").click()


async def _open_a_tool(page: Page) -> None:
    await page.locator("summary").filter(has_text="search_tickets").click()


async def _edit_session(page: Page) -> None:
    await page.get_by_role("button", name="Edit session").click()
    await expect(page.get_by_role("dialog").get_by_label("Temperature")).to_have_value("0.4")
    await page.get_by_role("button", name="Override Model settings").click()


async def _open_files(page: Page) -> None:
    # The narrow page shows the drawer.
    await page.get_by_role("button", name="Files", exact=True).click()
    await expect(page.locator(".tree")).to_be_visible()
    await expect(page.locator(".chip img")).to_have_count(1)
    await page.locator(".tree summary", has_text="src").click()
    await page.get_by_role("article", name="Input").last.evaluate("(input) => input.scrollIntoView()")


async def _nothing(_: Page) -> None:
    pass


async def _open_account(page: Page) -> None:
    await page.get_by_role("button", name="Account of").click()


PREPARED: dict[str, Callable[[Page], Awaitable[None]]] = {
    "agent-session": _edit_session,
    "account": _open_account,
    "audit": _unfold,
    "files": _open_files,
    "inbox": _open_a_request,
    "key-create": _ask_for_a_key,
    "mcp-server": _open_a_tool,
    "palette": _open_palette,
    "usage": _scroll_to_usage,
}


async def take_all(browser: Browser, url: str, sample: SampleWorkspace, files_id: str, names: set[str]) -> None:
    """Without names: all."""
    more = {"key-create": "keys", "palette": "sessions", "usage": "activity"}
    shots = sample.pages | {name: sample.pages[page] for name, page in more.items()}
    shots["agent-session"] = f"/sessions/{sample.agents.session_id}"
    # Last: the browser remembers that the files are open.
    shots["files"] = f"/sessions/{files_id}"
    shots = {name: path for name, path in shots.items() if not names or name in names}
    for size, (width, height) in SIZES.items():
        for scheme in SCHEMES:
            async with open_console(browser, url, width=width, height=height, scheme=scheme) as console:
                await console.page.clock.set_fixed_time(datetime.now(UTC) + LATER)
                await console.open()
                await console.heading("Sign in")
                if not names or "sign-in" in names:
                    await _take(browser, console, f"sign-in-{size}-{scheme}")
                # On none of the pages of the pictures: navigating to the current page does nothing.
                await console.sign_in(sample.key, "/none")
                for name, path in shots.items():
                    await console.load(path)
                    await PREPARED.get(name, _nothing)(console.page)
                    await _take(browser, console, f"{name}-{size}-{scheme}")


async def take_pages_of_people(browser: Browser, url: str, world: World, names: set[str]) -> None:
    """Those of somebody with an invitation, and of Ada, who signs in with a password."""
    await _set_password(world)
    for size, (width, height) in SIZES.items():
        for scheme in SCHEMES:
            code = await world.http.post("/v1/device-codes", json={"device_name": "qd on workstation"})
            shots = {
                "invitation": f"/invitation?token={await invite(world, 'mary@harbour.example', Role.MEMBER)}",
                "profile": "/profile",
                "device": f"/devices/approve?code={code.json()['user_code']}",
                "account": "/sessions",
            }
            async with open_console(browser, url, width=width, height=height, scheme=scheme) as console:
                # The code is younger than the rest.
                await console.page.clock.set_fixed_time(datetime.now(UTC))
                for name, path in shots.items():
                    if name == "profile":
                        await console.sign_in_person(ADA, PASSWORD, "/none")
                    if names and name not in names:
                        continue
                    if name == "invitation":
                        await console.open(path)
                        await console.heading("Join Harbour Works")
                    else:
                        await console.load(path)
                    await PREPARED.get(name, _nothing)(console.page)
                    await _take(browser, console, f"{name}-{size}-{scheme}")


async def _set_password(world: World) -> None:
    async with await world.connect() as connection:
        token = await invitations.account_link(connection, KeySettings(environment="live"), SignInSettings(), ADA)
    answer = await Profile(world).post("/v1/invitations/accept", {"token": token, "password": PASSWORD})
    assert answer.status_code == 200, answer.text


async def _take(browser: Browser, console: ConsolePage, name: str) -> None:
    await expect(console.page.get_by_text("Loading")).to_have_count(0)
    taken = await console.page.screenshot(animations="disabled", caret="hide")
    (FOLDER / f"{name}.png").write_bytes(await reduce_colours(browser, taken))


async def _fill_an_hour(world: World, session_id: str) -> None:
    """Insert runs and inputs of the last hour for the Activity page."""
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    async with await world.connect() as connection:
        for minute in range(60):
            count = round(7 + 5 * math.sin(minute / 7) + 2 * math.cos(minute * 2.3))
            for number in range(count):
                at = now - timedelta(minutes=60 - minute, seconds=-number * 60 / count)
                wait = timedelta(milliseconds=40 + 25 * math.sin(minute / 5) + 60 * (number == 0) + 3 * number)
                end = "failed" if (minute * 7 + number) % 43 == 0 else "succeeded"
                values = (first_id_at(at), session_id, world.workspace_id, end, at + wait, at + wait * 30)
                await connection.execute(_RUN, values)
                await connection.execute(_INPUT, (session_id, first_id_at(at), world.workspace_id, at))


async def _fill_a_month(world: World, session_id: str) -> None:
    """Insert what runs of the last 30 days used, with two models, for the Activity page."""
    models = {"anthropic:claude-sonnet-4-5": 4.1e-6, "openai:gpt-5-mini": 0.4e-6}
    today = datetime.now(UTC).date()
    async with await world.connect() as connection:
        for day in range(30):
            for model, price in models.items():
                tokens = round(420_000 + 250_000 * math.sin(day / 3.1) + 90_000 * math.cos(day * len(model)))
                used = (tokens, tokens // 3, tokens // 9, round(tokens * price, 4))
                values = (world.workspace_id, today - timedelta(days=day), uuid4(), session_id, model, *used)
                await connection.execute(_USAGE, values)
        await connection.execute(_DAILY_USAGE, (world.workspace_id,))


async def _fill_statistics(sample: SampleWorkspace) -> None:
    """Insert runs of the versions of the agent, of the last three weeks."""
    world, agents = sample.world, sample.agents
    async with await world.connect() as connection:
        for number in range(240):
            version = 1 if number < 90 else 2 if number < 210 else 3
            at = datetime.now(UTC) - timedelta(hours=2 * (240 - number))
            seconds = (9 - 2 * version) * (1 + 0.5 * math.sin(number))
            end = "failed" if number % (11 * version) == 0 else "succeeded"
            cost = round(0.012 * (1 + 0.3 * math.cos(number)) / version, 6)
            run = (first_id_at(at), agents.session_id, world.workspace_id, end, at, at + timedelta(seconds=seconds))
            await connection.execute(_AGENT_RUN, (*run, agents.agent_id, version, 5000, 400, cost))


async def _picture(url: str, database_url: str, names: set[str]) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=30) as http:
        sample = await create_sample(database_url, http)
        await _fill_an_hour(sample.world, sample.busy_id)
        await _fill_a_month(sample.world, sample.busy_id)
        await _fill_statistics(sample)
        files_id = await add_files_session(sample.world)
        async with launch_browser(chromium()) as browser:
            await take_all(browser, url, sample, files_id, names)
            await take_pages_of_people(browser, url, sample.world, names)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="qd-screenshots-") as folder:
        data = Path(folder) / "data"
        data.mkdir()
        with embedded_postgres.running(Path(folder) / "postgres") as database_url:
            migrate_for_tests(database_url)
            with serving(database_url, data, **PATIENT) as server, working(database_url, data):
                asyncio.run(_picture(server.url, database_url, set(sys.argv[1:])))


if __name__ == "__main__":
    main()
