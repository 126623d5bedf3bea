"""A browser for each test, at the shared server, with a worker behind it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.console.browser import Visitor, running, visiting
from tests.workers import Worker, working
from tests.world import Server


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with running() as browser:
        yield browser


@pytest.fixture
async def visitor(browser: Browser, server: Server) -> AsyncIterator[Visitor]:
    async with visiting(browser, server.url) as visitor:
        yield visitor


@pytest.fixture
def worker(server: Server, tmp_path: Path) -> Iterator[Worker]:
    with working(server.database_url, tmp_path) as worker:
        yield worker
