"""A browser for each file of tests, at the shared server, with a worker behind it. A test has a context of its own in
it: nothing is kept for the next. What a browser gives belongs to the loop that started it, so a file has one loop."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.console.browser import Visitor, running, visiting
from tests.workers import Worker, working
from tests.world import Server, World


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with running() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def visitor(browser: Browser, server: Server) -> AsyncIterator[Visitor]:
    async with visiting(browser, server.url) as visitor:
        yield visitor


@pytest_asyncio.fixture(loop_scope="module")
async def world(server: Server) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        yield await World.create(server.database_url, http)


@pytest.fixture
def worker(server: Server, tmp_path: Path) -> Iterator[Worker]:
    with working(server.database_url, tmp_path) as worker:
        yield worker
