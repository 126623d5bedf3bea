"""Who is let into the queue of inputs without being looked at by itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import TypeVar
from uuid import UUID, uuid4

from quarterdeck.access.model import Credential, CredentialKind, Permission
from quarterdeck.db.database import Database, Work
from quarterdeck.errors import Kind, ServiceError
from quarterdeck.runs.known_callers import KnownCallers
from quarterdeck.settings import DatabaseSettings
from tests.world import World

T = TypeVar("T")


class Counting(Database):
    reads = 0

    async def read(self, work: Work[T]) -> T:
        self.reads += 1
        return await super().read(work)


@asynccontextmanager
async def counting(url: str) -> AsyncIterator[Counting]:
    database = Counting(url, DatabaseSettings(pool_wait_seconds=0.5))
    await database.open()
    try:
        yield database
    finally:
        await database.close()


def credential(key: str, kind: CredentialKind = CredentialKind.API_KEY) -> Credential:
    return Credential(kind, sha256(key.encode()).digest())


async def test_newcomers_are_asked_about_together_and_once(world: World) -> None:
    sessions = [UUID(await world.new_session()) for _ in range(40)]
    async with counting(world.database_url) as database:
        known = KnownCallers(database, 100)
        who = credential(world.key)
        assert await asyncio.gather(*(known.know(who, session, None) for session in sessions)) == [True] * 40
        # The first may have been asked about before the others came.
        assert database.reads <= 2
        asked = database.reads
        assert await known.know(who, sessions[7], None)
        assert database.reads == asked
        # To name the workspace is another thing to say.
        assert await known.know(who, sessions[7], world.workspace_id)
        assert database.reads == asked + 1


async def test_whoever_may_not_write_to_the_session_is_not_known(world: World) -> None:
    session_id, other = UUID(await world.new_session()), await World.create(world.database_url, world.http)
    reader = await world.new_key(Permission.WORKSPACE_READ)
    token = await world.new_token(str(session_id))
    async with counting(world.database_url) as database:
        known = KnownCallers(database, 100)
        for _ in range(2):
            assert not await known.know(credential("nobody's"), session_id, None)
            assert not await known.know(credential(reader), session_id, None)
            assert not await known.know(credential(other.key), session_id, None)
            assert not await known.know(credential(world.key), session_id, other.workspace_id)
            assert not await known.know(credential(world.key), uuid4(), None)
            # It may, but is looked at by itself.
            assert not await known.know(credential(token, CredentialKind.SESSION_TOKEN), session_id, None)
        assert await known.know(credential(world.key), session_id, None)


async def test_who_came_first_is_forgotten_first(world: World) -> None:
    sessions = [UUID(await world.new_session()) for _ in range(3)]
    async with counting(world.database_url) as database:
        known = KnownCallers(database, 2)
        for session in sessions:
            assert await known.know(credential(world.key), session, None)
        asked = database.reads
        assert await known.know(credential(world.key), sessions[2], None)
        assert database.reads == asked
        assert await known.know(credential(world.key), sessions[0], None)
        assert database.reads == asked + 1


async def test_while_the_database_is_away_all_who_wait_hear_it_at_once() -> None:
    async with counting("host=127.0.0.1 port=1 connect_timeout=1") as database:
        known = KnownCallers(database, 2)
        first = asyncio.create_task(known.know(credential("any"), uuid4(), None))
        await asyncio.sleep(0.1)
        others = [known.know(credential("any"), uuid4(), None) for _ in range(3)]
        for told in await asyncio.gather(first, *others, return_exceptions=True):
            assert isinstance(told, ServiceError)
            assert told.kind is Kind.UNAVAILABLE
        assert database.reads == 1
