"""A database that answers, but not as hoped: locks that stay, pools that are empty, disks that are full, faults that
nobody thought of. And two API processes that must agree at once."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from uuid import UUID

import httpx
import pytest

from tests.workers import held_up
from tests.world import EVERY_PERMISSION, Server, World, bundle, clone_database, drop_database, error_of, serving

# Five are promised; the rest is for a busy machine. What hangs takes longer.
ANSWER_SECONDS = 20.0
AWAY, BROKEN, CONFLICT = (503, "internal"), (500, "internal"), (409, "conflict")


@pytest.fixture(scope="module")
def url(postgres_url: str, template: str) -> Iterator[str]:
    """Of this module alone: its tests put triggers and locks on tables that all workspaces share."""
    url = clone_database(postgres_url, template)
    yield url
    drop_database(postgres_url, url)


@pytest.fixture(scope="module")
def api(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    # Who waits for a lock twice is told so, and not that the database is slow, on a machine that is slow too.
    with serving(url, tmp_path_factory.mktemp("api"), DATABASE_STATEMENT_SECONDS=15) as server:
        yield server


@pytest.fixture(scope="module")
def narrow_api(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One connection for inputs and one for everything else, which may be held for long."""
    settings = {
        "DATABASE_POOL_CONNECTIONS": 1,
        "DATABASE_SUBMIT_CONNECTIONS": 1,
        "DATABASE_LOCK_WAIT_SECONDS": 60,
        "DATABASE_LOCK_ATTEMPT_SECONDS": 60,
        "DATABASE_STATEMENT_SECONDS": 80,
    }
    with serving(url, tmp_path_factory.mktemp("narrow"), **settings) as server:
        yield server


@asynccontextmanager
async def at(server: Server) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=server.url, timeout=30, limits=httpx.Limits(max_connections=200)) as http:
        yield await World.create(server.database_url, http)


@pytest.fixture
async def here(api: Server) -> AsyncIterator[World]:
    async with at(api) as world:
        yield world


async def timed(answering: Awaitable[httpx.Response]) -> httpx.Response:
    began = time.monotonic()
    answer = await answering
    assert time.monotonic() - began < ANSWER_SECONDS
    return answer


@asynccontextmanager
async def locked(world: World, session_id: str) -> AsyncIterator[None]:
    """Somebody else holds the session, and does not let go."""
    async with await world.connect() as holder, holder.transaction():
        await holder.execute("SELECT pg_advisory_xact_lock(session_lock(%s))", (UUID(session_id),))
        await holder.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        yield


@asynccontextmanager
async def trigger(world: World, table: str, body: str) -> AsyncIterator[None]:
    """`body` runs before each row that is inserted into `table`."""
    await world.execute(
        f"CREATE FUNCTION test_trigger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN NEW; END $$"
    )
    await world.execute(
        f"CREATE TRIGGER test_trigger BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION test_trigger()"
    )
    try:
        yield
    finally:
        await world.execute("DROP FUNCTION test_trigger CASCADE")


async def count(world: World, session_id: str) -> tuple[int, int, int]:
    """Runs, events and receipts that this session and its caller left."""
    ((runs, events, receipts),) = await world.fetch(
        "SELECT (SELECT count(*) FROM runs WHERE session_id = %s),"
        " (SELECT count(*) FROM session_events WHERE session_id = %s),"
        " (SELECT count(*) FROM receipts r JOIN api_keys k ON k.lineage_id = r.scope_id WHERE k.workspace_id = %s)",
        session_id,
        session_id,
        world.workspace_id,
    )
    return runs, events, receipts


# --- locks ---


@pytest.mark.long
async def test_a_session_that_stays_locked_is_409_and_stores_nothing(here: World) -> None:
    """The interface's conflict of a run that changed twice: the only one that says to try again."""
    stuck = await here.new_session()
    others = [await here.new_session() for _ in range(5)]
    async with locked(here, stuck):
        *free, refused, refused_keyed = await asyncio.gather(
            *(timed(here.submit(other)) for other in others),
            timed(here.submit(stuck, "x")),
            timed(here.submit(stuck, "x", idempotency_key="k")),
        )
    for answer in (refused, refused_keyed):
        assert error_of(answer) == CONFLICT
        assert answer.headers["retry-after"] == "0"
    assert [answer.status_code for answer in free] == [200] * len(others), "the others only shared a call with it"
    assert await count(here, stuck) == (0, 0, 0)
    assert (await here.submit(stuck, "x", idempotency_key="k")).json()["outcome"] == "new_run"
    assert await count(here, stuck) == (1, 1, 1)


async def test_a_change_to_a_session_that_stays_locked_is_409(here: World) -> None:
    session_id = await here.new_session()
    run_id = (await here.submit(session_id)).json()["run_id"]
    async with locked(here, session_id):
        answers = await asyncio.gather(
            timed(here.post(f"/v1/runs/{run_id}/cancel", None)),
            timed(here.delete(f"/v1/sessions/{session_id}")),
        )
    for answer in answers:
        assert error_of(answer) == CONFLICT
        assert answer.headers["retry-after"] == "0"
    assert (await here.get(f"/v1/runs/{run_id}")).json()["state"] == "queued"
    assert (await here.post(f"/v1/runs/{run_id}/cancel", None)).status_code == 200


async def test_a_lock_that_is_let_go_in_time_costs_nothing(here: World) -> None:
    session_id = await here.new_session()
    async with locked(here, session_id):
        waiting = [asyncio.create_task(timed(here.submit(session_id, str(n)))) for n in range(5)]
        await held_up(here)
    assert [(await task).status_code for task in waiting] == [200] * 5
    assert await count(here, session_id) == (1, 5, 0)


@pytest.mark.long
async def test_clients_of_a_locked_session_do_not_delay_others(here: World) -> None:
    """Inputs for the stuck session keep coming, as its clients are told to retry at once."""
    stuck = await here.new_session()
    others = [await here.new_session() for _ in range(4)]
    until = time.monotonic() + 3

    async def insist() -> None:
        while time.monotonic() < until:
            assert error_of(await timed(here.submit(stuck))) == CONFLICT

    async def work(session_id: str, times: list[float]) -> None:
        while time.monotonic() < until:
            began = time.monotonic()
            assert (await timed(here.submit(session_id))).status_code == 200
            times.append(time.monotonic() - began)
            await asyncio.sleep(0.05)

    times: list[float] = []
    async with locked(here, stuck):
        insisting = []
        for _ in range(8):
            insisting.append(asyncio.create_task(insist()))
            await asyncio.sleep(0.02)
        await asyncio.gather(*(work(session_id, times) for session_id in others))
        await asyncio.gather(*insisting)
    # Held up, each would take the two seconds that a lock is waited for. A busy machine is slow with some of them.
    assert sorted(times)[len(times) // 2] < 1.0


@pytest.mark.long
async def test_a_locked_row_is_409_and_stores_nothing(here: World) -> None:
    _, key_id = await here.new_key_record(())
    async with await here.connect() as holder, holder.transaction():
        await holder.execute("SELECT FROM api_keys WHERE id = %s FOR UPDATE", (key_id,))
        await holder.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        answer = await timed(here.post(f"/v1/api-keys/{key_id}/revoke", {}))
        assert error_of(answer) == CONFLICT
        assert answer.headers["retry-after"] == "0"
        assert (await timed(here.list_keys())).status_code == 200
    assert (await here.post(f"/v1/api-keys/{key_id}/revoke", {})).status_code == 200


# --- pools ---


@pytest.mark.long
async def test_an_empty_pool_is_503_in_time(narrow_api: Server) -> None:
    async with at(narrow_api) as world:
        session_id = await world.new_session()
        # From now on the process knows this caller and sends it straight to the queue.
        assert (await world.submit(session_id)).status_code == 200
        _, key_id = await world.new_key_record(())
        async with await world.connect() as holder, holder.transaction():
            await holder.execute("SELECT FROM api_keys WHERE id = %s FOR UPDATE", (key_id,))
            await holder.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            holding = asyncio.create_task(world.post(f"/v1/api-keys/{key_id}/revoke", {}))
            await held_up(world)
            answers = await asyncio.gather(
                *(timed(world.list_keys()) for _ in range(20)),
                *(timed(world.post("/v1/sessions", {})) for _ in range(20)),
                timed(world.http.get("/readyz")),
            )
            assert {error_of(answer) for answer in answers} == {AWAY}
            assert {answer.headers["retry-after"] for answer in answers} == {"1"}
            assert (await timed(world.http.get("/healthz"))).status_code == 200
            assert (await timed(world.submit(session_id))).status_code == 200, "inputs have a pool of their own"
            assert not holding.done(), "it has the one connection all the time"
        assert (await holding).status_code == 200
        assert (await timed(world.list_keys())).status_code == 200


@pytest.mark.long
async def test_a_crowd_shares_one_connection(narrow_api: Server) -> None:
    async with at(narrow_api) as world:
        sessions = [await world.new_session() for _ in range(10)]
        calls = [timed(world.submit(sessions[n % 10], str(n))) for n in range(50)]
        calls += [timed(world.list_keys()) for _ in range(50)]
        assert {answer.status_code for answer in await asyncio.gather(*calls)} == {200}


# --- faults that PostgreSQL reports ---


@pytest.mark.parametrize("sqlstate", ["53100", "XX000", "QD001", "22012"], ids=["disk full", "bug", "unknown", "odd"])
async def test_full_disk_and_unexpected_errors_are_500_and_store_nothing(
    here: World, api: Server, sqlstate: str
) -> None:
    session_id, skill_id = await here.new_session(), await here.new_skill()
    fail = f"RAISE EXCEPTION 'planted' USING ERRCODE = '{sqlstate}';"
    cases: dict[str, Awaitable[httpx.Response]] = {
        "session_events": here.submit(session_id, idempotency_key="k"),
        "sessions": here.post("/v1/sessions", {}, headers={"Idempotency-Key": "k"}),
        "skill_versions": here.push(skill_id, bundle(), headers={"Idempotency-Key": "k"}),
        "receipts": here.submit(session_id, idempotency_key="k2"),
    }
    for table, sending in cases.items():
        async with trigger(here, table, fail):
            answer = await timed(sending)
        assert error_of(answer) == BROKEN, table
        assert "retry-after" not in answer.headers
        assert "planted" not in answer.text
        written = api.log.read_text()
        assert written.count("planted") > 0, "the operator is told what the caller is not"
        assert answer.headers["x-request-id"] in written
    assert await count(here, session_id) == (0, 0, 0)
    assert await here.fetch("SELECT FROM skill_versions WHERE skill_id = %s", skill_id) == []
    assert (await here.submit(session_id, idempotency_key="k")).status_code == 200
    assert (await here.push(skill_id, bundle())).json()["version"] == 1


@pytest.mark.parametrize("sqlstate", ["53200", "53300", "57014", "25006", "57P01"])
async def test_a_database_in_trouble_is_503(here: World, sqlstate: str) -> None:
    """Out of memory, too many connections, cancelled, read-only (a standby), shutting down."""
    session_id = await here.new_session()
    async with trigger(here, "session_events", f"RAISE EXCEPTION 'planted' USING ERRCODE = '{sqlstate}';"):
        answer = await timed(here.submit(session_id))
    assert error_of(answer) == AWAY
    assert answer.headers["retry-after"] == "1"
    async with trigger(here, "sessions", f"RAISE EXCEPTION 'planted' USING ERRCODE = '{sqlstate}';"):
        answer = await timed(here.post("/v1/sessions", {}))
    assert error_of(answer) == AWAY
    assert await count(here, session_id) == (0, 0, 0)


async def test_one_bad_input_fails_alone(here: World) -> None:
    """Forty inputs share a few calls; PostgreSQL refuses one of them."""
    sessions = [await here.new_session() for _ in range(10)]
    fail = "IF NEW.data->>'text' = 'bad' THEN RAISE EXCEPTION 'planted'; END IF;"
    texts = [str(n) if n != 20 else "bad" for n in range(40)]
    async with trigger(here, "session_events", fail):
        answers = await asyncio.gather(*(here.submit(sessions[n % 10], text) for n, text in enumerate(texts)))
    assert [answer.status_code for answer in answers] == [500 if text == "bad" else 200 for text in texts]
    ((stored,),) = await here.fetch("SELECT count(*) FROM session_events WHERE session_id = ANY(%s)", sessions)
    assert stored == 39


@pytest.mark.parametrize("sqlstate", ["23505", "40P01", "40001", "55P03"])
async def test_contention_is_retried_without_the_caller_noticing(here: World, sqlstate: str) -> None:
    session_id = await here.new_session()
    # A sequence keeps counting when its transaction is rolled back.
    await here.execute("CREATE SEQUENCE test_failures")
    await here.execute("GRANT USAGE ON SEQUENCE test_failures TO quarterdeck_app")
    try:
        fail = f"IF nextval('test_failures') = 1 THEN RAISE EXCEPTION 'planted' USING ERRCODE = '{sqlstate}'; END IF;"
        async with trigger(here, "runs", fail):
            assert (await here.submit(session_id, "x")).json()["outcome"] == "new_run"
        await here.execute("ALTER SEQUENCE test_failures RESTART")
        async with trigger(here, "sessions", fail):
            assert (await here.post("/v1/sessions", {"title": "once"})).status_code == 201
    finally:
        await here.execute("DROP SEQUENCE test_failures")
    assert await count(here, session_id) == (1, 1, 0)
    titles = await here.fetch(
        "SELECT title FROM sessions WHERE workspace_id = %s AND title IS NOT NULL", here.workspace_id
    )
    assert titles == [("once",)]


@pytest.mark.parametrize("sqlstate", ["23505", "40P01", "40001"])
async def test_an_active_run_that_changed_twice_is_409_and_leaves_no_row(here: World, sqlstate: str) -> None:
    """The second line of defence trips twice, as if somebody had written without the session's lock."""
    session_id = await here.new_session()
    async with trigger(here, "runs", f"RAISE EXCEPTION 'planted' USING ERRCODE = '{sqlstate}';"):
        answer = await timed(here.submit(session_id, idempotency_key="k"))
    assert error_of(answer) == CONFLICT
    assert answer.headers["retry-after"] == "0"
    assert await count(here, session_id) == (0, 0, 0)
    assert (await here.submit(session_id, idempotency_key="k")).status_code == 200


@pytest.mark.parametrize("sqlstate", ["40P01", "40001"])
async def test_other_operations_that_lose_a_race_twice_are_503(here: World, sqlstate: str) -> None:
    async with trigger(here, "sessions", f"RAISE EXCEPTION 'planted' USING ERRCODE = '{sqlstate}';"):
        answer = await timed(here.post("/v1/sessions", {}))
    assert error_of(answer) == AWAY
    assert answer.headers["retry-after"] == "1"


# --- two processes ---


async def test_revocation_takes_effect_in_the_other_process(api: Server, narrow_api: Server) -> None:
    async with at(api) as one, httpx.AsyncClient(base_url=narrow_api.url, timeout=30) as http:
        other = World(one.database_url, http)
        other.workspace_id, other.key = one.workspace_id, one.key
        secret, key_id = await one.new_key_record(EVERY_PERMISSION)
        session_id = await one.new_session()
        token = (await one.post(f"/v1/sessions/{session_id}/tokens", {}, key=secret)).json()["token"]
        for _ in range(3):
            assert (await other.list_keys(key=secret)).status_code == 200
            assert (await other.submit(session_id, key=secret)).status_code == 200
            assert (await other.submit(session_id, key=token)).status_code == 200
        assert (await one.post(f"/v1/api-keys/{key_id}/revoke", {})).status_code == 200
        refused = await asyncio.gather(
            other.list_keys(key=secret),
            other.submit(session_id, key=secret),
            other.submit(session_id, key=token),
            other.post("/v1/sessions", {}, key=secret),
        )
        assert [error_of(answer) for answer in refused] == [(401, "unauthorized")] * 4


async def until_served(world: World, session_id: str, key: str) -> httpx.Response:
    """As clients do it: on a busy machine the wait for a connection or a lock can be too long."""
    while (answer := await world.submit(session_id, key, idempotency_key=key)).status_code == 503:
        await asyncio.sleep(0.1)
    return answer


@pytest.mark.long
async def test_two_processes_keep_one_active_run_and_one_effect_a_key(api: Server, narrow_api: Server) -> None:
    async with at(api) as one, httpx.AsyncClient(base_url=narrow_api.url, timeout=30) as http:
        other = World(one.database_url, http)
        other.workspace_id, other.key = one.workspace_id, one.key
        session_id = await one.new_session()
        answers = await asyncio.gather(
            *(until_served(world, session_id, str(n // 2)) for n in range(60) for world in (one, other))
        )
        assert {answer.status_code for answer in answers} == {200}
        assert await count(one, session_id) == (1, 30, 30)
