"""Workers that die or sleep at a chosen moment of a run: what was stored is not done again, what was not is, and every
acknowledged input ends once."""

import asyncio
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from msgspec import Struct

from quarterdeck.core.settings import ActionSettings, DatabaseSettings
from quarterdeck.db.database import Database
from quarterdeck.events.model import EventType, NewEvent
from quarterdeck.runs import calls, lifecycle
from quarterdeck.runs.action_model import ActionKind, NewAction
from quarterdeck.runs.lifecycle import Lease
from quarterdeck.runs.model import Superseded
from tests.contract.provider_server import OPENAI, Reply, Wire, streams
from tests.fault.postgres import own_postgres
from tests.fault.stand_in import (
    FIRST,
    LAST,
    WRITES,
    Brake,
    Gate,
    StandIn,
    asking,
    call_then_answer,
    new_session,
    walk_to,
)
from tests.workers import (
    STEP,
    Worker,
    at_rest,
    begin_demo_run,
    check_log,
    ended,
    eventually,
    log_of,
    take_for_dead,
    working,
)
from tests.world import (
    PATIENT,
    START_SECONDS,
    Server,
    World,
    app_url,
    clone_database,
    drop_database,
    error_of,
    serving,
)

Settings = dict[str, object]


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("api"), **PATIENT) as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture
def door() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as door:
        yield door


@pytest.fixture
def model(door: socket.socket) -> Settings:
    """For workers: whom to ask."""
    return asking(door)


@pytest.fixture
async def stand_in(door: socket.socket) -> AsyncIterator[StandIn]:
    async with StandIn.running(door) as stand_in:
        yield stand_in


def kill(worker: Worker) -> None:
    worker.signal(signal.SIGKILL)
    worker.process.wait()


async def submitted(world: World, session_id: str, text: str) -> str:
    answer = await world.submit(session_id, text)
    assert answer.status_code == 200, answer.text
    run_id: str = answer.json()["run_id"]
    return run_id


def texts_of(entries: list[dict[str, Any]], type_: str) -> list[str]:
    return [entry["data"]["text"] for entry in entries if entry["type"] == type_]


def check_requests(entries: list[dict[str, Any]], asked: list[list[Any]], answers: list[str]) -> None:
    """A request whose answer was stored is never made again by a later attempt. One that was superseded before learns
    that only when it stores its own answer. `answers` are those to `asked`, each unlike the others."""
    attempts: dict[str, int] = {}
    stored_by: dict[str, int] = {}
    for entry in entries:
        if entry["type"] == "run.started":
            attempts[entry["run_id"]] = entry["data"]["attempt"]
        elif entry["type"] == "message":
            stored_by[entry["data"]["text"]] = attempts[entry["run_id"]]
    for number, messages in enumerate(asked):
        if answers[number] in stored_by:
            superseded = stored_by[answers[number]] - 1
            assert asked[number + 1 :].count(messages) <= superseded, "a stored step was repeated"


# --- killed right before a write ---

# Requests to the model until the kill, and in all.
REQUESTS = {
    "begin": (0, 2),
    "store call": (1, 3),
    "store result": (1, 2),
    "take again": (1, 2),
    "store answer": (2, 3),
}
# These are single statements. One that PostgreSQL has received is carried out, though its worker is gone.
STATEMENTS = ("begin", "store call", "store answer")


class Point(Struct, frozen=True):
    """A write to die at, whether it is carried out nevertheless, and whether an input comes in while nobody works."""

    write: str
    late_input: bool
    is_stored: bool = False

    @property
    def model(self) -> str:
        return f"{self.write}, late input: {self.late_input}, stored: {self.is_stored}"

    @property
    def is_over(self) -> bool:
        """Whether the run is finished by the write. Then a late input starts another one."""
        return self.is_stored and self.write == "store answer"

    @property
    def requests(self) -> int:
        """In all. An answer that was stored is not asked for again."""
        repeated = self.is_stored and self.write in ("store call", "store answer")
        return REQUESTS[self.write][1] - repeated + (self.is_over and self.late_input)


POINTS = [Point(write, late_input) for write in WRITES for late_input in (False, True)]
POINTS += [Point(write, late_input, is_stored=True) for write in STATEMENTS for late_input in (False, True)]


@pytest.mark.long
async def test_killed_at_any_of_its_writes(world: World, server: Server, stand_in: StandIn, model: Settings) -> None:
    """A session for each point, all in one worker, which is killed when it stands before all those writes."""
    settings = model | {"DATABASE_POOL_CONNECTIONS": 2 * len(POINTS)}
    sessions = {point: await new_session(world, point.model) for point in POINTS}
    runs = {point: await submitted(world, sessions[point], "Hello.") for point in POINTS}
    for point in POINTS:
        assert await submitted(world, sessions[point], "Before the start.") == runs[point]
        answers = call_then_answer()
        # A request that is made again gets the same answer again.
        is_repeated = point.write == "store call" and not point.is_stored
        stand_in.replies[point.model] = [answers[0], *answers] if is_repeated else answers
    async with AsyncExitStack() as stack:
        brakes = {point: await stack.enter_async_context(Brake(world, sessions[point])) for point in POINTS}
        with working(server.database_url, server.data_dir, **settings) as worker:
            await asyncio.gather(*(walk_to(brakes[point], point.write) for point in POINTS))
            kill(worker)
        for point, brake in brakes.items():
            await (brake.let_last_pass() if point.is_stored else brake.drop_waiting())
    before = {point: await log_of(world, sessions[point]) for point in POINTS}
    for point in POINTS:
        assert len(stand_in.asked[point.model]) == REQUESTS[point.write][0], point
        if point.late_input:
            steered = await submitted(world, sessions[point], "Late.") == runs[point]
            assert steered is not point.is_over, point
    await take_for_dead(world)
    with working(server.database_url, server.data_dir, **settings):
        await at_rest(world, *sessions.values(), seconds=60)
    for point in POINTS:
        run = (await world.get(f"/v1/runs/{runs[point]}")).json()
        attempts = 1 if point.is_over or (point.write == "begin" and not point.is_stored) else 2
        expected = ("succeeded", attempts, 2 + (point.late_input and not point.is_over))
        assert (run["state"], run["attempts"], run["inputs_consumed"]) == expected, point
        entries = await log_of(world, sessions[point])
        assert entries[: len(before[point])] == before[point], point
        check_log(entries)
        _check_conversation(point, entries, stand_in)


def _check_conversation(point: Point, entries: list[dict[str, Any]], stand_in: StandIn) -> None:
    answered_apart = point.is_over and point.late_input
    assert texts_of(entries, "message") == [FIRST, LAST] + [LAST] * answered_apart, point
    assert [entry["data"]["call_id"] for entry in entries if entry["type"] == "tool.result"] == ["call_1"], point
    asked = stand_in.asked[point.model]
    assert len(asked) == point.requests, point
    texts = stand_in.texts(point.model)
    assert texts[-1] == ["Hello.", "Before the start."] + ["Late."] * point.late_input, point
    assert all(each[:2] == ["Hello.", "Before the start."] for each in texts), point
    if not point.late_input:
        repeated = [] if point.is_stored else {"store call": [(0, 1)], "store answer": [(1, 2)]}.get(point.write, [])
        assert [(a, b) for b in range(len(asked)) for a in range(b) if asked[a] == asked[b]] == repeated, point


@pytest.mark.long
async def test_killed_in_the_middle_of_an_answer(
    world: World, server: Server, stand_in: StandIn, model: Settings
) -> None:
    gate = Gate()
    stand_in.replies["x"] = [gate.reply(OPENAI.text("Half an ", "answer.")), streams(OPENAI.text("Whole."))]
    session_id = await new_session(world, "x")
    with working(server.database_url, server.data_dir, **model) as worker:
        run_id = await submitted(world, session_id, "Hello.")
        await gate.is_reached()
        await submitted(world, session_id, "While it dies.")
        kill(worker)
        await asyncio.wait_for(gate.client_left.wait(), START_SECONDS)
    await take_for_dead(world)
    with working(server.database_url, server.data_dir, **model):
        run = await ended(world, run_id)
    assert (run["state"], run["attempts"], run["steps"], run["inputs_consumed"]) == ("succeeded", 2, 1, 2)
    assert stand_in.texts("x") == [["Hello."], ["Hello.", "While it dies."]]
    entries = await log_of(world, session_id)
    check_log(entries)
    assert texts_of(entries, "message") == ["Whole."]
    assert [entry["type"] for entry in entries].count("run.requeued") == 1


# --- woken up ---


@pytest.mark.long
async def test_woken_in_the_middle_of_an_answer(
    world: World, server: Server, stand_in: StandIn, model: Settings
) -> None:
    """Its answer comes when another worker is at the same step: it is refused, and the sleeper serves others again."""
    slept, other = Gate(), Gate()
    stand_in.replies["x"] = [
        gate.reply(OPENAI.text(f"By the {name}.")) for gate, name in ((slept, "first"), (other, "second"))
    ]
    session_id = await new_session(world, "x")
    with working(server.database_url, server.data_dir, **model) as sleeper:
        run_id = await submitted(world, session_id, "Hello.")
        await slept.is_reached()
        sleeper.signal(signal.SIGSTOP)
        await take_for_dead(world)
        with working(server.database_url, server.data_dir, **model) as second:
            await other.is_reached()
            taken_over = await log_of(world, session_id)
            slept.opened.set()
            sleeper.signal(signal.SIGCONT)
            await eventually(lambda: _says(sleeper, "run went on without this attempt", "run was cancelled"))
            assert await log_of(world, session_id) == taken_over
            other.opened.set()
            run = await ended(world, run_id)
            kill(second)
        assert (run["state"], run["attempts"], run["steps"]) == ("succeeded", 2, 1)
        entries = await log_of(world, session_id)
        check_log(entries)
        assert texts_of(entries, "message") == ["By the second."]
        elsewhere = await new_session(world, "y")
        assert (await ended(world, await submitted(world, elsewhere, "Still there?")))["state"] == "succeeded"


async def _says(worker: Worker, *any_of: str) -> bool:
    said = worker.log.read_text()
    return any(words in said for words in any_of)


STARTED = NewEvent(EventType.TOOL_STARTED, {"call_id": "c", "name": "t", "key": "k", "attempt": 1})
NOTE = NewEvent(EventType.NOTE, {"text": "No.", "key": "k"})
RESULT = NewEvent(EventType.TOOL_RESULT, {"call_id": "c", "name": "t", "text": "No."})
APPROVAL = NewAction(kind=ActionKind.APPROVAL, reason="No.", step=1, call_id="c", tool="t", arguments={})
Write = Callable[[Database, Lease], Awaitable[object]]
STALE_WRITES: dict[str, Write] = {
    "take": lambda database, lease: lifecycle.take(database, lease, 1, 1000),
    "record": lambda database, lease: lifecycle.record(
        database, lease, [NewEvent(EventType.MESSAGE, {"role": "assistant", "text": "No."})], "demo", STEP
    ),
    "start a call": lambda database, lease: calls.record_start(database, lease, STARTED),
    "effect": lambda database, lease: calls.append(database, lease, NOTE),
    "result": lambda database, lease: calls.record_result(database, lease, RESULT),
    "wait": lambda database, lease: lifecycle.wait(database, lease, [APPROVAL], ActionSettings()),
    "fail": lambda database, lease: lifecycle.fail(database, lease, "No."),
    "hand back": lambda database, lease: lifecycle.hand_back(database, lease, "No."),
    "record and finish": lambda database, lease: lifecycle.record(database, lease, [], "demo", STEP, finish=True),
    "finish": lifecycle.finish,
}


@pytest.mark.parametrize("write", STALE_WRITES)
async def test_no_write_after_the_attempt_gave_the_run_back(world: World, server: Server, write: str) -> None:
    session_id = await world.new_session()
    run_id = await submitted(world, session_id, "Hello.")
    database = Database(app_url(server.database_url), DatabaseSettings(pool_connections=2))
    await database.open()
    try:
        lease = await begin_demo_run(database, UUID(run_id))
        assert lease is not None
        await lifecycle.hand_back(database, lease, "Its worker was stopped.")
        entries = await log_of(world, session_id)
        if write == "finish":
            assert await lifecycle.finish(database, lease) is False
        else:
            with pytest.raises(Superseded):
                await STALE_WRITES[write](database, lease)
        assert await log_of(world, session_id) == entries
    finally:
        await database.close()


@pytest.mark.parametrize("unconsumed", [False, True], ids=["nothing to take", "an input to take"])
@pytest.mark.parametrize("write", STALE_WRITES)
async def test_no_write_of_an_older_attempt_is_let_through(
    world: World, server: Server, write: str, unconsumed: bool
) -> None:
    session_id = await world.new_session()
    run_id = await submitted(world, session_id, "Hello.")
    database = Database(app_url(server.database_url), DatabaseSettings(pool_connections=2))
    await database.open()
    try:
        older = await begin_demo_run(database, UUID(run_id))
        newer = await begin_demo_run(database, UUID(run_id))
        assert older is not None
        assert newer is not None
        if unconsumed:
            await submitted(world, session_id, "More.")
        run = (await world.get(f"/v1/runs/{run_id}")).json()
        entries = await log_of(world, session_id)
        if write == "finish":
            assert await lifecycle.finish(database, older) is False
        else:
            with pytest.raises(Superseded):
                await STALE_WRITES[write](database, older)
        assert (await world.get(f"/v1/runs/{run_id}")).json() == run
        assert await log_of(world, session_id) == entries
        await lifecycle.take(database, newer, 1, 1000)
        assert await lifecycle.finish(database, newer)
    finally:
        await database.close()


# --- PostgreSQL goes down ---

SESSIONS = 6
# Inputs of each session, before, between and after the restarts together.
INPUTS = 10
# What a worker does without being told otherwise, but for a lease that is soon over: its queue leaves jobs behind.
SHIPPED = {
    "WORKER_LEASE_SECONDS": 2,
    "DATABASE_LOCK_WAIT_SECONDS": DatabaseSettings().lock_wait_seconds,
    "DATABASE_LOCK_ATTEMPT_SECONDS": DatabaseSettings().lock_attempt_seconds,
    "DATABASE_STATEMENT_SECONDS": DatabaseSettings().statement_seconds,
    "DATABASE_POOL_WAIT_SECONDS": DatabaseSettings().pool_wait_seconds,
}


@pytest.mark.long
async def test_postgres_restarted_and_crashed_under_load(tmp_path: Path, stand_in: StandIn, model: Settings) -> None:
    numbers = count()
    given: dict[str, list[str]] = {}
    with (
        own_postgres("load") as postgres,
        serving(postgres.url, tmp_path) as server,
        working(postgres.url, tmp_path, **model, **SHIPPED) as one,
        working(postgres.url, tmp_path, **model, **SHIPPED) as two,
    ):
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(postgres.url, http)
            sessions = {f"s{n}": await new_session(world, f"s{n}") for n in range(SESSIONS)}
            for name in sessions:
                given[name] = []
                stand_in.replies[name] = [_numbered(numbers, given[name]) for _ in range(2000)]
            over = asyncio.Event()
            talks = [asyncio.create_task(_talk(world, session_id, over)) for session_id in sessions.values()]
            for order in (signal.SIGINT, signal.SIGQUIT):
                await asyncio.sleep(1.5)
                await asyncio.to_thread(postgres.stop, order)
                await asyncio.sleep(0.5)
                await asyncio.to_thread(postgres.start)
            over.set()
            acknowledged = await asyncio.gather(*talks)
            await at_rest(world, *sessions.values(), seconds=60)
            assert one.process.poll() is None
            assert two.process.poll() is None
            for (name, session_id), texts in zip(sessions.items(), acknowledged, strict=True):
                entries = await log_of(world, session_id)
                check_log(entries)
                check_requests(entries, stand_in.asked[name], given[name])
                accepted = Counter(texts_of(entries, "input.accepted"))
                assert all(accepted[text] == 1 for text in texts)


def _numbered(numbers: "count[int]", given: list[str]) -> Reply:
    """An answer unlike any other, in a few pieces."""

    async def reply(wire: Wire) -> None:
        given.append(f"answer {next(numbers)}")
        await streams(OPENAI.text(given[-1][:3], given[-1][3:]), pause_seconds=0.02)(wire)

    return reply


async def _talk(world: World, session_id: str, over: asyncio.Event) -> list[str]:
    """Until it is over and enough was acknowledged: which is returned. The rest may or may not have been stored."""
    acknowledged: list[str] = []
    for number in count():
        if over.is_set() and len(acknowledged) >= INPUTS:
            break
        answer = await world.submit(session_id, f"input {number}")
        if answer.status_code == 200:
            acknowledged.append(f"input {number}")
        else:
            # The second: its run changed twice during the request.
            assert error_of(answer) in ((503, "internal"), (409, "conflict")), answer.text
        await asyncio.sleep(0.1)
    return acknowledged


# --- too long ---


@pytest.mark.long
async def test_a_run_ends_after_its_time(world: World, server: Server) -> None:
    with working(server.database_url, server.data_dir, RUN_MAX_SECONDS=1):
        run = await ended(world, await submitted(world, await world.new_session(), "demo: slow 60"))
    assert (run["state"], run["failure"]) == ("failed", "The run took longer than 1 seconds.")
