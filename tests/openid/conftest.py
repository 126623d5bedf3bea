"""A hostile provider for each test that asks for one."""

from collections.abc import AsyncIterator

import pytest

from tests.openid.hostile_provider import HostileProvider, hostile_provider


@pytest.fixture
async def hostile() -> AsyncIterator[HostileProvider]:
    async with hostile_provider() as provider:
        yield provider
