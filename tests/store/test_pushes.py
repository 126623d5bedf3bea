"""What pushes ask of the database together, and how it answers each."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from uuid import UUID

import msgspec
import pytest

from quarterdeck.access.model import Permission
from quarterdeck.audit.model import Origin
from quarterdeck.db.database import Database, Work
from quarterdeck.db.together import Together
from quarterdeck.errors import Kind, ServiceError, unavailable
from quarterdeck.ids import new_id
from quarterdeck.settings import DatabaseSettings
from quarterdeck.skills.model import NewVersion, Pusher, PushVerdict
from quarterdeck.skills.pushes import Pushes
from tests.world import World


class Counting(Database):
    calls = 0

    async def read(self, work: Work[object]) -> object:  # type: ignore[override]
        self.calls += 1
        return await super().read(work)

    async def statement(self, work: Work[object], *, repeatable: bool) -> object:  # type: ignore[override]
        self.calls += 1
        return await super().statement(work, repeatable=repeatable)


@asynccontextmanager
async def counting(url: str) -> AsyncIterator[Counting]:
    database = Counting(url, DatabaseSettings())
    await database.open()
    try:
        yield database
    finally:
        await database.close()


def hashed(key: str) -> bytes:
    return sha256(key.encode()).digest()


async def test_who_may_push_is_asked_for_many_at_once_and_told_to_each(world: World) -> None:
    skills = [UUID(await world.new_skill()) for _ in range(5)]
    reader, revoked = await world.new_key(Permission.WORKSPACE_READ), await world.revoked_key()
    other = await World.create(world.database_url, world.http)
    async with counting(world.database_url) as database:
        pushes = Pushes(database)
        mine = [pushes.may_push(Pusher(hashed(world.key), skill, None)) for skill in skills * 6]
        named = [pushes.may_push(Pusher(hashed(world.key), skills[0], world.workspace_id))]
        strangers = [
            pushes.may_push(Pusher(hashed(key), skills[0], workspace))
            for key, workspace in (
                (reader, None),
                (revoked, None),
                (other.key, None),
                (world.key, other.workspace_id),
                ("unknown", None),
            )
        ]
        found = await asyncio.gather(*mine, *named, *strangers)
        assert database.calls <= 2
    assert len(set(found[:31])) == 1
    assert found[0] is not None
    assert found[31:] == [None] * 5


async def test_archives_are_touched_together_also_the_same_one(world: World) -> None:
    async with counting(world.database_url) as database:
        pushes = Pushes(database)
        names = [sha256(bytes([number % 10])).digest() for number in range(40)]
        first = await asyncio.gather(*(pushes.touch(name, 7) for name in names))
        assert database.calls <= 2
        assert len(set(first)) == 10
        assert await asyncio.gather(*(pushes.touch(name, 7) for name in names)) == first
    assert len(await world.fetch("SELECT FROM bundles WHERE bytes = 7")) == 10


async def test_a_version_is_refused_to_whoever_may_not_push_it(world: World) -> None:
    """Who lacks the right or does not see the skill never comes so far by HTTP."""
    skill_id, reader = UUID(await world.new_skill()), await world.new_key(Permission.WORKSPACE_READ)
    async with counting(world.database_url) as database:
        pushes = Pushes(database)
        await pushes.touch(bytes(32), 1)
        for key, skill, expected in (
            (reader, skill_id, PushVerdict.FORBIDDEN),
            (await world.revoked_key(), skill_id, PushVerdict.UNAUTHORIZED),
            (world.key, new_id(), PushVerdict.NOT_FOUND),
            (world.key, skill_id, PushVerdict.PUSHED),
        ):
            assert (await pushes.push(new_version(key, skill))).verdict is expected
    assert await world.fetch("SELECT version FROM skill_versions WHERE skill_id = %s", skill_id) == [(1,)]


async def test_the_same_push_again_finds_its_own_receipt(world: World) -> None:
    """As when a commit's answer is lost and the statement is repeated."""
    skill_id = UUID(await world.new_skill())
    async with counting(world.database_url) as database:
        pushes = Pushes(database)
        await pushes.touch(bytes(32), 1)
        new = msgspec.structs.replace(new_version(world.key, skill_id), idempotency_key="k", fingerprint=bytes(32))
        assert (await pushes.push(new)).version == 1
        again = await pushes.push(new)
        assert (again.verdict, again.version) == (PushVerdict.REPLAYED, None)
        assert again.receipt is not None
        assert msgspec.json.decode(again.receipt)["id"] == str(new.id)
        other = msgspec.structs.replace(new, fingerprint=b"x" * 32)
        assert (await pushes.push(other)).verdict is PushVerdict.CONFLICT


def new_version(key: str, skill_id: UUID) -> NewVersion:
    return NewVersion(
        secret_hash=hashed(key),
        origin=Origin(),
        if_match=None,
        idempotency_key=None,
        fingerprint=None,
        id=new_id(),
        skill_id=skill_id,
        bundle_sha256=bytes(32),
        bundle_bytes=1,
        frontmatter='{"name":"x"}',
        manifest="{}",
    )


# --- together ---


class Calls:
    """What was asked for, and when it is answered."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go_on = asyncio.Event()

    async def make(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        if 0 in items:
            await self.go_on.wait()
        if 13 in items:
            raise unavailable()
        return [item * 2 for item in items]


async def test_who_comes_during_a_call_is_in_the_next() -> None:
    calls = Calls()
    together = Together(calls.make)
    first = asyncio.create_task(together.ask(0))
    while not calls.batches:
        await asyncio.sleep(0)
    later = [asyncio.create_task(together.ask(number)) for number in (1, 2, 3)]
    await asyncio.sleep(0)
    calls.go_on.set()
    assert await asyncio.gather(first, *later) == [0, 2, 4, 6]
    assert calls.batches == [[0], [1, 2, 3]]


async def test_a_call_that_hangs_holds_up_nobody_else() -> None:
    calls = Calls()
    together = Together(calls.make)
    stuck = asyncio.create_task(together.ask(0))
    while not calls.batches:
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        assert await together.ask(1) == 2
    assert not stuck.done()
    calls.go_on.set()
    assert await stuck == 0


async def test_a_fault_is_told_to_all_who_were_in_the_call_and_to_nobody_else() -> None:
    together = Together(Calls().make)
    told = await asyncio.gather(*(together.ask(number) for number in (12, 13)), return_exceptions=True)
    for fault in told:
        assert isinstance(fault, ServiceError)
        assert fault.kind is Kind.UNAVAILABLE
    assert told[0] is not told[1]
    assert await together.ask(14) == 28


async def test_whoever_leaves_takes_nobody_along() -> None:
    calls = Calls()
    together = Together(calls.make)
    leaving, staying = asyncio.create_task(together.ask(0)), asyncio.create_task(together.ask(5))
    while not calls.batches:
        await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    calls.go_on.set()
    assert await staying == 10
    assert calls.batches == [[0, 5]]
