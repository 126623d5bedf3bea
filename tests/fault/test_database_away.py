"""PostgreSQL stopped, crashed, paused and cut off under a running API: every answer is the envelope and in time,
nothing acknowledged is lost, nothing keyed is done twice, and the API needs no restart."""

import asyncio
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import psycopg
import pytest

from quarterdeck.api.routes import OPERATIONS
from quarterdeck.core.actors import Role
from tests.contract.test_callers import Objects, request
from tests.fault.postgres import LossyLine, Postgres, own_postgres
from tests.people import Person
from tests.workers import eventually, held_up, started, working
from tests.world import Server, World, bundle, error_of, serving

pytestmark = pytest.mark.long

# Five are promised, and `make availability` measures that. Here only a request that hangs fails.
ANSWER_SECONDS = 60.0
PATIENCE_SECONDS = 120.0
AWAY = (503, "internal")


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with own_postgres("away") as postgres:
        yield postgres


@pytest.fixture(scope="module")
def api(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    # Small batches: in the test of a paused database, most inputs must still wait in the process.
    with serving(postgres.url, tmp_path_factory.mktemp("api"), SUBMIT_BATCH_INPUTS=2) as server:
        yield server


@pytest.fixture(scope="module")
def line(postgres: Postgres) -> Iterator[LossyLine]:
    with tempfile.TemporaryDirectory(prefix="qd-line-") as folder:
        line = LossyLine(postgres.cluster, Path(folder))
        yield line
        line.close()


@pytest.fixture(scope="module")
def far_api(line: LossyLine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An API that reaches its database over a line that can lose answers."""
    # It writes nothing by itself meanwhile: the commit that is lost must be the one of the request.
    with serving(line.url, tmp_path_factory.mktemp("far"), KEY_LAST_USED_FLUSH_SECONDS=60) as server:
        yield server


@pytest.fixture
async def here(api: Server) -> AsyncIterator[World]:
    async with httpx.AsyncClient(
        base_url=api.url, timeout=ANSWER_SECONDS, limits=httpx.Limits(max_connections=100)
    ) as http:
        yield await World.create(api.database_url, http)


@pytest.fixture
async def far(far_api: Server, postgres: Postgres) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=far_api.url, timeout=ANSWER_SECONDS) as http:
        yield await World.create(postgres.url, http)


# Those of people are for people.
SHARED = [operation for operation in OPERATIONS if not operation.public and not operation.personal]


async def all_operations(world: World, objects: Objects) -> dict[str, httpx.Response]:
    """Each once, at the same time, and the answers by name."""
    workspace = str(world.workspace_id)
    calls = (
        request(
            world,
            operation,
            objects.ids | (objects.doomed if operation.method == "DELETE" else {}),
            world.key,
            workspace,
            is_prepared=True,
        )
        for operation in SHARED
    )
    answers = await asyncio.gather(*calls)
    return {operation.name: answer for operation, answer in zip(SHARED, answers, strict=True)}


async def assert_all_away(world: World, objects: Objects) -> None:
    answers, ready, alive = await asyncio.gather(
        all_operations(world, objects), world.http.get("/readyz"), world.http.get("/healthz")
    )
    for name, answer in answers.items():
        assert error_of(answer) == AWAY, name
        assert int(answer.headers["retry-after"]) >= 1
    assert error_of(ready) == AWAY
    assert alive.status_code == 200


# What was done in an earlier round, or is undone by another operation of the same.
DONE_BEFORE = {
    **{operation.name: 404 for operation in OPERATIONS if operation.method == "DELETE"},
    **dict.fromkeys(("create_agent", "create_credential", "create_mcp_server", "create_skill"), 409),
    "rotate_api_key": 409,
    "retry_run": 409,
    "withdraw_invitation": 409,
    # Its run was cancelled by another of these operations.
    "resolve_action": 409,
}


async def assert_all_well(world: World, objects: Objects) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        answers = await all_operations(world, objects)
        wrong = {
            operation.name: answers[operation.name].text
            for operation in SHARED
            if answers[operation.name].status_code not in (operation.success_status, DONE_BEFORE.get(operation.name))
        }
        if not wrong:
            return
        assert time.monotonic() < deadline, wrong
        await asyncio.sleep(0.1)


async def texts_of(world: World) -> Counter[str]:
    rows = await world.fetch(
        "SELECT e.data->>'text' FROM session_events e JOIN sessions s ON s.id = e.session_id WHERE s.workspace_id = %s",
        world.workspace_id,
    )
    return Counter(text for (text,) in rows)


# --- away and back ---


async def test_stopped_database_is_503_until_it_starts_again(here: World, postgres: Postgres) -> None:
    objects = await Objects.make(here)
    person = await Person.join(here, Role.MEMBER)
    postgres.stop()
    try:
        await assert_all_away(here, objects)
        assert error_of(await person.get("/v1/profile")) == AWAY
        assert error_of(await person.sign_in(person.email)) == AWAY
    finally:
        postgres.start()
    await assert_all_well(here, objects)
    assert (await person.get("/v1/profile")).status_code == 200
    assert (await person.sign_in(person.email)).status_code == 200


async def test_an_api_that_starts_before_its_database_serves_once_it_is_there(
    postgres: Postgres, tmp_path: Path
) -> None:
    postgres.stop()
    try:
        with serving(postgres.url, tmp_path) as server:
            async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
                assert error_of(await http.get("/readyz")) == AWAY
                postgres.start()
                world = await World.create(postgres.url, http)
                await eventually(lambda: _is_ready(http))
                await assert_all_well(world, await Objects.make(world))
    finally:
        postgres.stop()
        postgres.start()


async def test_a_worker_that_is_stopped_while_the_database_is_away_ends(
    here: World, postgres: Postgres, tmp_path: Path
) -> None:
    with working(postgres.url, tmp_path, DATABASE_STATEMENT_SECONDS=4, DATABASE_POOL_WAIT_SECONDS=3) as worker:
        await started(here, await _busy_session(here))
        postgres.stop()
        try:
            worker.signal(signal.SIGTERM)
            assert await asyncio.to_thread(worker.process.wait, PATIENCE_SECONDS) == 0
        finally:
            postgres.start()


async def _busy_session(world: World) -> str:
    session_id = await world.new_session()
    assert (await world.submit(session_id, "demo: slow 60")).status_code == 200
    return session_id


async def _is_ready(http: httpx.AsyncClient) -> bool:
    return (await http.get("/readyz")).status_code == 200


async def test_paused_is_503_and_nothing_is_done_twice(here: World, postgres: Postgres) -> None:
    objects = await Objects.make(here)
    sessions = [await here.new_session() for _ in range(8)]
    keyed, unkeyed = ([f"{kind} {n}" for n in range(20)] for kind in ("keyed", "unkeyed"))

    def send(text: str) -> Awaitable[httpx.Response]:
        session_id = sessions[int(text.split()[1]) % len(sessions)]
        return here.submit(session_id, text, idempotency_key=text if text in keyed else None)

    # In turn over all connections, so that none is found dead while everything stands still.
    for session_id in sessions:
        assert (await here.submit(session_id)).status_code == 200
    with postgres.paused():
        away = asyncio.create_task(assert_all_away(here, objects))
        answers = dict(zip(keyed + unkeyed, await asyncio.gather(*map(send, keyed + unkeyed)), strict=True))
        await away
    assert {error_of(answer) for answer in answers.values()} == {AWAY}
    await assert_all_well(here, objects)
    for text in keyed:
        assert (await send(text)).status_code == 200
    stored = await texts_of(here)
    assert {text for text in keyed if stored[text] != 1} == set()
    assert {text for text in unkeyed if stored[text] > 1} == set()
    unsent = {text for text in unkeyed if "may have taken effect" not in answers[text].text}
    assert len(unsent) > 10, "a few were on their way when the database stood still; the others waited here"
    assert {text for text in unsent if stored[text] != 0} == set(), "what was given up is not stored afterwards"


# --- restarts under load ---


# --- answers lost on the way back ---

PARTS_OF_A_LOSS = pytest.mark.parametrize("done", [False, True], ids=["before", "after"])


@PARTS_OF_A_LOSS
async def test_keyed_input_with_lost_response_is_stored_once(far: World, line: LossyLine, done: bool) -> None:
    session_id = await far.new_session()
    text = f"lost {uuid4()}"
    line.lose(text.encode(), after_it_is_done=done)
    answer = await far.submit(session_id, text, idempotency_key=text)
    assert line.has_lost
    assert (answer.status_code, answer.json()["outcome"]) == (200, "new_run")
    assert (await far.submit(session_id, text, idempotency_key=text)).content == answer.content
    assert (await texts_of(far))[text] == 1


@PARTS_OF_A_LOSS
async def test_input_without_key_and_lost_response_has_an_unknown_outcome(
    far: World, line: LossyLine, done: bool
) -> None:
    session_id = await far.new_session()
    text = f"lost {uuid4()}"
    line.lose(text.encode(), after_it_is_done=done)
    answer = await far.submit(session_id, text)
    assert line.has_lost
    assert error_of(answer) == AWAY
    assert "may have taken effect" in answer.json()["error"]["message"]
    assert (await texts_of(far))[text] == int(done)


async def test_a_batch_whose_answer_was_lost_is_settled_one_by_one(far: World, line: LossyLine) -> None:
    """Keyed and unkeyed inputs of several sessions share the call that is lost."""
    sessions = [await far.new_session() for _ in range(4)]
    mark = f"batch {uuid4()}"
    line.lose(mark.encode(), after_it_is_done=True)

    async def send(number: int) -> tuple[str, bool, httpx.Response]:
        text, is_keyed = f"{mark} {number}", number % 2 == 0
        key = text if is_keyed else None
        return text, is_keyed, await far.submit(sessions[number % 4], text, idempotency_key=key)

    results = await asyncio.gather(*(send(number) for number in range(40)))
    assert line.has_lost
    stored = await texts_of(far)
    for text, is_keyed, answer in results:
        assert stored[text] == 1
        assert answer.status_code == 200 or (not is_keyed and error_of(answer) == AWAY)


@PARTS_OF_A_LOSS
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "unkeyed"])
async def test_a_commit_whose_answer_was_lost(far: World, line: LossyLine, done: bool, keyed: bool) -> None:
    """With a key the caller gets the record, and the secret that is shown only once; without one, the truth."""
    label = f"lost {uuid4()}"
    headers = {"Idempotency-Key": label} if keyed else {}
    body = {"label": label, "permissions": ["workspace.read"]}
    line.lose(b"COMMIT", after_it_is_done=done)
    answer = await far.post("/v1/api-keys", body, headers=headers)
    assert line.has_lost
    rows = await far.fetch("SELECT id FROM api_keys WHERE label = %s", label)
    if keyed:
        assert answer.status_code == 201, answer.text
        assert [str(id_) for (id_,) in rows] == [answer.json()["id"]]
        assert (await far.list_keys(key=answer.json()["secret"])).status_code == 200
    else:
        assert error_of(answer) == AWAY
        assert "may have taken effect" in answer.json()["error"]["message"]
        assert len(rows) == int(done)


@PARTS_OF_A_LOSS
async def test_a_push_whose_commit_was_lost_leaves_no_gap(far: World, line: LossyLine, done: bool) -> None:
    skill_id, archive, key = await far.new_skill(), bundle(note=str(uuid4())), str(uuid4())
    line.lose(b"COMMIT", after_it_is_done=done)
    first = await far.push(skill_id, archive, headers={"Idempotency-Key": key})
    assert line.has_lost
    second = await far.push(skill_id, archive)
    again = await far.push(skill_id, archive, headers={"Idempotency-Key": key})
    assert [answer.status_code for answer in (first, second, again)] == [201, 201, 201]
    assert [answer.json()["version"] for answer in (first, second)] == [1, 2]
    assert again.content == first.content
    # What the server itself repeated is no replay to its caller.
    assert ["idempotency-replayed" in answer.headers for answer in (first, again)] == [False, True]
    rows = await far.fetch("SELECT version FROM skill_versions WHERE skill_id = %s ORDER BY version", skill_id)
    assert rows == [(1,), (2,)]


async def test_connections_that_were_ended_while_idle_cost_no_caller_anything(here: World) -> None:
    session_id = await here.new_session()
    for _ in range(3):
        await here.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        await asyncio.sleep(0.05)
        assert (await here.submit(session_id)).status_code == 200
        assert (await here.post("/v1/sessions", {})).status_code == 201
        assert (await here.list_keys()).status_code == 200


async def test_a_read_whose_connection_is_ended_is_repeated(here: World) -> None:
    """The reader waits for a lock when its connection is ended, and is answered over another."""
    async with await here.connect() as holder:
        async with holder.transaction():
            await holder.execute("LOCK TABLE api_keys IN ACCESS EXCLUSIVE MODE")
            reading = asyncio.create_task(here.list_keys())
            await held_up(here)
            cursor = await holder.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            )
            assert cursor.rowcount >= 1
        assert (await reading).status_code == 200


def test_proxy_of_this_test_passes_bytes_unchanged(postgres: Postgres, line: LossyLine) -> None:
    """A test of the tools: what the line says it lost before or after is so in the database."""
    with psycopg.connect(postgres.url, autocommit=True) as direct:
        direct.execute("CREATE TABLE IF NOT EXISTS honest (word text)")
        for word, done in (("before", False), ("after", True)):
            line.lose(word.encode(), after_it_is_done=done)
            with pytest.raises(psycopg.OperationalError), psycopg.connect(line.url, autocommit=True) as lossy:
                lossy.execute("INSERT INTO honest VALUES (%s)", (word,))
        assert direct.execute("SELECT word FROM honest").fetchall() == [("after",)]
        direct.execute("DROP TABLE honest")
