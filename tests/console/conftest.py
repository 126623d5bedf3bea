"""One browser and one event loop for all console tests, on the shared server. Each test has its own tab."""

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.console.browser import ConsolePage, chromium, launch_browser, open_console
from tests.workers import Worker, working
from tests.world import Server, World


@pytest.fixture(scope="session", autouse=True)
def executable() -> str:
    """Requested by every test before the server is started, so that tests without Chromium are skipped at once."""
    return chromium()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(executable: str) -> AsyncIterator[Browser]:
    async with launch_browser(executable) as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def console(browser: Browser, server: Server) -> AsyncIterator[ConsolePage]:
    async with open_console(browser, server.url) as console:
        yield console


@pytest_asyncio.fixture(loop_scope="session")
async def world(server: Server) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=server.url, timeout=120) as http:
        yield await World.create(server.database_url, http)


@pytest.fixture(scope="module")
def worker(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """Shared by the tests of a file. It takes every run on the server, so no test of that file may rely on queued
    runs."""
    with working(server.database_url, tmp_path_factory.mktemp("worker")) as worker:
        yield worker
