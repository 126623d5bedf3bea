"""Attacks on the shared connections: many requests that wait for a lock. The neighbour is another workspace of the same
process, and every request of it is served."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from uuid import UUID

import httpx
import pytest

from quarterdeck.core.settings import DatabaseSettings
from tests.attacks.neighbour import Tenants, attacked, repeated
from tests.workers import eventually, held_up
from tests.world import PATIENT, Server, World, bundle, clone_database, drop_database, error_of, serving

# Five times as many as there are connections in the pool.
ATTACKERS = 40
# Inputs of the attacker fit twice into its share of the queue, and three times into the queue.
INPUT_BYTES = 100_000
DEFAULTS = DatabaseSettings()
# A lock is waited for until it is released, but only for a short time with a connection in hand. A connection that is
# kept during the whole wait would be missed by the neighbour until its request is answered 503.
SETTINGS = PATIENT | {
    "DATABASE_LOCK_ATTEMPT_SECONDS": DEFAULTS.lock_attempt_seconds,
    "DATABASE_POOL_WAIT_SECONDS": 20,
    "SUBMIT_WAITING_BYTES": 4 * INPUT_BYTES,
    "SUBMIT_WORKSPACE_WAITING_BYTES": 2 * INPUT_BYTES,
}


@pytest.fixture(scope="module")
def api(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A process of its own, because the attacks use all its connections."""
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("api"), **SETTINGS) as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture
async def attacker(api: Server) -> AsyncIterator[World]:
    limits = httpx.Limits(max_connections=2 * ATTACKERS)
    async with httpx.AsyncClient(base_url=api.url, timeout=60, limits=limits) as http:
        yield await World.create(api.database_url, http)


@pytest.fixture
async def neighbour(api: Server) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=api.url, timeout=60) as http:
        yield await World.create(api.database_url, http)


@asynccontextmanager
async def locked(world: World, *session_ids: str) -> AsyncIterator[None]:
    async with await world.connect() as holder, holder.transaction():
        await holder.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        for session_id in session_ids:
            await holder.execute("SELECT pg_advisory_xact_lock(session_lock(%s))", (UUID(session_id),))
        yield


async def new_run(world: World) -> tuple[str, str]:
    session_id = await world.new_session()
    run_id: str = (await world.submit(session_id)).json()["run_id"]
    return session_id, run_id


async def is_served(neighbour: World) -> None:
    """One request of every kind."""
    session_id, run_id = await new_run(neighbour)
    skill_id = await neighbour.new_skill()
    answers = {
        "read": await neighbour.get(f"/v1/sessions/{session_id}"),
        "list": await neighbour.list_keys(),
        "create": await neighbour.post("/v1/sessions", {}),
        "submit": await neighbour.submit(session_id, idempotency_key=session_id),
        "cancel": await neighbour.post(f"/v1/runs/{run_id}/cancel", None),
        "push": await neighbour.push(skill_id, bundle()),
        "delete": await neighbour.delete(f"/v1/sessions/{session_id}"),
    }
    assert {name: answer.status_code for name, answer in answers.items() if answer.status_code >= 300} == {}


async def waiting_connections(world: World) -> int:
    query = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return len(await world.fetch(query))


async def is_waited_for(world: World, session_id: str) -> bool:
    query = """
    SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (classid::bigint << 32) | objid::bigint = session_lock(%s)
    """
    return bool(await world.fetch(query, UUID(session_id)))


async def repeat(send: Callable[[], Awaitable[httpx.Response]], is_over: asyncio.Event) -> list[int]:
    statuses = []
    while not is_over.is_set():
        statuses.append((await send()).status_code)
    return statuses


@pytest.mark.long
async def test_requests_that_wait_for_a_session_leave_connections_to_the_neighbour(
    attacker: World, neighbour: World
) -> None:
    session_id, run_id = await new_run(attacker)
    async with locked(attacker, session_id):
        attack = [asyncio.create_task(attacker.post(f"/v1/runs/{run_id}/cancel", None)) for _ in range(ATTACKERS)]
        await held_up(attacker)
        for _ in range(3):
            await is_served(neighbour)
            assert await waiting_connections(attacker) <= DEFAULTS.pool_connections * DEFAULTS.workspace_share
        assert not any(task.done() for task in attack)
        # Other sessions of the attacked workspace wait for a connection, but not for the lock.
        assert (await attacker.list_keys()).status_code == 200
    assert {(await task).status_code for task in attack} == {200}


@pytest.mark.long
async def test_many_who_cancel_the_same_run_leave_connections_to_the_neighbour(
    attacker: World, neighbour: World
) -> None:
    _, run_id = await new_run(attacker)
    is_over = asyncio.Event()
    cancel = lambda: attacker.post(f"/v1/runs/{run_id}/cancel", None)  # noqa: E731
    attack = [asyncio.create_task(repeat(cancel, is_over)) for _ in range(ATTACKERS)]
    try:
        for _ in range(3):
            await is_served(neighbour)
    finally:
        is_over.set()
    statuses = [status for task in attack for status in await task]
    assert set(statuses) <= {200, 409}


@pytest.mark.parametrize("locked_by", ["row", "Idempotency-Key", "credential"])
async def test_other_locks_leave_connections_to_the_neighbour(
    attacker: World, neighbour: World, locked_by: str
) -> None:
    skill_id = await attacker.new_skill()
    secret, key_id = await attacker.new_key_record(())
    ((lineage_id,),) = await attacker.fetch(
        "SELECT lineage_id FROM api_keys WHERE secret_hash = sha256(%s::bytea)", attacker.key.encode()
    )
    numbers = count()

    async def send() -> httpx.Response:
        if locked_by == "row":
            return await attacker.patch(f"/v1/skills/{skill_id}", {"name": f"name-{next(numbers)}"})
        if locked_by == "Idempotency-Key":
            return await attacker.post("/v1/sessions", {}, headers={"Idempotency-Key": "k"})
        return await attacker.post("/v1/sessions", {}, key=secret)

    lock = {
        "row": ("SELECT FROM skills WHERE id = %s FOR UPDATE", UUID(skill_id)),
        "Idempotency-Key": (
            "SELECT pg_advisory_xact_lock(receipt_lock(%s, 'create_session', 'k'))",
            lineage_id,
        ),
        "credential": ("SELECT pg_advisory_xact_lock(credential_lock(%s))", key_id),
    }
    async with await attacker.connect() as holder, holder.transaction():
        await holder.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        statement, value = lock[locked_by]
        await holder.execute(statement.encode(), (value,))
        attack = [asyncio.create_task(send()) for _ in range(ATTACKERS)]
        await held_up(attacker)
        await is_served(neighbour)
        assert not any(task.done() for task in attack)
    expected = {"row": 200, "Idempotency-Key": 201, "credential": 403}
    assert {(await task).status_code for task in attack} == {expected[locked_by]}


@pytest.mark.long
async def test_inputs_to_locked_sessions_do_not_delay_the_neighbour(attacker: World, neighbour: World) -> None:
    """Neither its sessions that are free nor one that is locked for a moment."""
    sessions = [await attacker.new_session() for _ in range(ATTACKERS)]
    free, busy = await neighbour.new_session(), await neighbour.new_session()
    async with locked(attacker, *sessions):
        attack = [asyncio.create_task(attacker.submit(session_id)) for session_id in sessions]
        await held_up(attacker)
        assert (await neighbour.submit(free)).status_code == 200
        async with locked(neighbour, busy):
            waiting = asyncio.create_task(neighbour.submit(busy))
            await eventually(lambda: is_waited_for(neighbour, busy))
        assert (await waiting).status_code == 200
        await is_served(neighbour)
        assert not any(task.done() for task in attack)
    assert {(await task).status_code for task in attack} == {200}


async def test_inputs_of_one_workspace_do_not_fill_the_queue(attacker: World, neighbour: World) -> None:
    stuck, free = await attacker.new_session(), await neighbour.new_session()
    async with locked(attacker, stuck):
        attack = [asyncio.create_task(attacker.submit(stuck, "x" * INPUT_BYTES)) for _ in range(8)]
        refused, waiting = set[asyncio.Task[httpx.Response]](), set(attack)
        while len(refused) < 6:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            refused |= done
        assert {error_of(await task) for task in refused} == {(503, "internal")}
        assert (await neighbour.submit(free, "x" * INPUT_BYTES)).status_code == 200
        await is_served(neighbour)
    assert [(await task).status_code for task in waiting] == [200, 200]


@pytest.mark.long
async def test_the_neighbour_is_served_by_a_whole_server(tenants: Tenants) -> None:
    """With default settings, and with workers that need the lock too."""
    attacker = tenants.attacker
    session_id, run_id = await new_run(attacker)
    attack = repeated(lambda: attacker.post(f"/v1/runs/{run_id}/cancel", None), ATTACKERS)
    async with locked(attacker, session_id):
        (await attacked(tenants.neighbour, attack, rounds=3)).check(rounds=3)
