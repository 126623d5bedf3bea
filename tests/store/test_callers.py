"""Credentials of reads that come at the same moment, looked up together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import httpx
import pytest

from quarterdeck.access.callers import Callers
from quarterdeck.access.model import Credential, CredentialKind, Permission, Principal
from quarterdeck.access.secrets import mint, recognise
from quarterdeck.db.database import Connection, Database, Work
from quarterdeck.errors import Kind, ServiceError
from quarterdeck.settings import DatabaseSettings
from tests.world import World, app_url

T = TypeVar("T")
PATIENCE_SECONDS = 20
# As the service has it, and some more.
STALE_SECONDS = 0.6
REVOKE = "UPDATE api_keys SET revoked_at = now() WHERE workspace_id = %s"


class Watched(Database):
    """Counts, and holds the reads with these numbers up until they may go on."""

    def __init__(self, url: str, *held: int) -> None:
        super().__init__(url, DatabaseSettings(lock_wait_seconds=60, statement_seconds=80, pool_wait_seconds=0.5))
        self.reads = 0
        self.held = {number: asyncio.Event() for number in held}

    async def read(self, work: Work[T]) -> T:
        self.reads += 1
        if (may_go_on := self.held.get(self.reads)) is not None:
            await may_go_on.wait()
        return await super().read(work)


@pytest.fixture
async def own_world(database_url: str) -> AsyncIterator[World]:
    """Without a server: on a database where nobody else asks."""
    async with httpx.AsyncClient() as http, asyncio.timeout(4 * PATIENCE_SECONDS):
        yield await World.create(database_url, http)


class Crowd:
    """Reads of nothing but who asks."""

    def __init__(self, database: Watched) -> None:
        self._callers = Callers(database)

    def ask(self, secret: str) -> "asyncio.Task[Principal | None]":
        return asyncio.create_task(self._ask(credential(secret)))

    async def _ask(self, asking: Credential) -> Principal | None:
        async def who(_: Connection, principal: Principal | None) -> Principal | None:
            return principal

        return await self._callers.read(asking, who)


def credential(secret: str) -> Credential:
    recognised = recognise(secret)
    assert recognised is not None
    return recognised


@asynccontextmanager
async def watched(url: str, *held: int) -> AsyncIterator[tuple[Watched, Crowd]]:
    database = Watched(url, *held)
    await database.open()
    try:
        yield database, Crowd(database)
    finally:
        await database.close()


async def until_reads(database: Watched, number: int) -> None:
    while database.reads < number:
        await asyncio.sleep(0.001)


async def test_those_who_come_meanwhile_are_looked_up_together(own_world: World) -> None:
    async with watched(app_url(own_world.database_url)) as (database, crowd):
        found = await asyncio.gather(*(crowd.ask(own_world.key) for _ in range(40)))
        assert {principal and principal.workspace_id for principal in found} == {own_world.workspace_id}
        # One each, the first with its own look-up, and one look-up for all the others.
        assert database.reads == 40 + 1
        # A lone one has no look-up but its own.
        assert await crowd.ask(own_world.key) is not None
        assert database.reads == 41 + 1


async def test_each_of_a_batch_hears_of_itself(own_world: World) -> None:
    reader = await own_world.new_key(Permission.WORKSPACE_READ)
    gone, expired = await own_world.revoked_key(), await own_world.expired_key()
    async with watched(app_url(own_world.database_url)) as (database, crowd):
        first, alive, revoked, limited, ended = await asyncio.gather(
            crowd.ask(own_world.key),
            crowd.ask(own_world.key),
            crowd.ask(gone),
            crowd.ask(reader),
            crowd.ask(expired),
        )
        assert database.reads == 5 + 1
        assert alive is not None
        assert alive == first
        assert alive.permissions == set(Permission)
        assert limited is not None
        assert limited.permissions == {Permission.WORKSPACE_READ}
        assert (revoked, ended) == (None, None)


async def test_nothing_is_remembered(own_world: World) -> None:
    async with watched(app_url(own_world.database_url)) as (_, crowd):
        assert None not in await asyncio.gather(*(crowd.ask(own_world.key) for _ in range(3)))
        await own_world.execute(REVOKE, own_world.workspace_id)
        assert await asyncio.gather(*(crowd.ask(own_world.key) for _ in range(3))) == [None, None, None]
        assert await crowd.ask(own_world.key) is None


async def test_who_waited_for_a_connection_since_is_looked_up_again(own_world: World) -> None:
    # The first with its look-up, the look-up of the second, the second.
    async with watched(app_url(own_world.database_url), 3) as (database, crowd):
        first, second = crowd.ask(own_world.key), crowd.ask(own_world.key)
        assert await first is not None
        await until_reads(database, 3)
        await own_world.execute(REVOKE, own_world.workspace_id)
        await asyncio.sleep(STALE_SECONDS)
        database.held[3].set()
        assert await second is None


async def test_a_look_up_that_takes_its_time_holds_nobody_else_up(own_world: World) -> None:
    async with watched(app_url(own_world.database_url), 1, 2) as (database, crowd):
        stuck = [crowd.ask(own_world.key), crowd.ask(own_world.key)]
        # The look-up of the second, which goes beside the first.
        await until_reads(database, 2)
        assert await crowd.ask(own_world.key) is not None
        assert not any(one.done() for one in stuck)
        for may_go_on in database.held.values():
            may_go_on.set()
        assert None not in await asyncio.gather(*stuck)


async def test_who_leaves_takes_nothing_from_the_others(own_world: World) -> None:
    async with watched(app_url(own_world.database_url), 1, 2) as (database, crowd):
        maker, waiting, *others = [crowd.ask(own_world.key) for _ in range(5)]
        await until_reads(database, 1)
        maker.cancel()
        await until_reads(database, 2)
        waiting.cancel()
        database.held[2].set()
        assert None not in await asyncio.gather(*others)
        for left in (maker, waiting):
            with pytest.raises(asyncio.CancelledError):
                await left
        assert await crowd.ask(own_world.key) is not None


async def test_a_fault_of_one_look_up_is_told_to_all_in_it_and_to_nobody_else(own_world: World) -> None:
    token = own_world.key.replace("qd_", "qds_", 1)
    # Tokens are asked for in a statement of their own, which now fails.
    await own_world.execute("REVOKE SELECT ON session_tokens FROM quarterdeck_app")
    async with watched(app_url(own_world.database_url)) as (_, crowd):
        first, *together = [crowd.ask(secret) for secret in (own_world.key, own_world.key, token)]
        assert await first is not None
        told = await asyncio.gather(*together, return_exceptions=True)
        assert [isinstance(fault, ServiceError) and fault.kind for fault in told] == [Kind.INTERNAL] * 2
        # Each its own: what is raised in one place must not grow by what is raised in another.
        assert told[0] is not told[1]
        assert await crowd.ask(own_world.key) is not None


async def test_while_the_database_is_away_everybody_hears_it_at_once() -> None:
    async with watched("host=127.0.0.1 port=1 connect_timeout=1") as (_, crowd):
        secret = mint(CredentialKind.API_KEY, "test").text
        async with asyncio.timeout(PATIENCE_SECONDS):
            told = await asyncio.gather(*(crowd.ask(secret) for _ in range(4)), return_exceptions=True)
        assert [isinstance(fault, ServiceError) and fault.kind for fault in told] == [Kind.UNAVAILABLE] * 4
