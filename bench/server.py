"""What is measured: `qd api` and `qd worker` as processes of their own, on a database of their own, and a caller."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from pathlib import Path
from time import monotonic
from typing import Any, LiteralString
from uuid import UUID, uuid4

import msgspec
import psycopg
from msgspec import Struct
from psycopg import AsyncConnection, sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from bench.case import BenchError, Ground
from bench.provider import QUICKLY
from bench.wire import Answer, Wire, request
from quarterdeck.core.settings import DatabaseSettings, KeySettings, SignInSettings
from quarterdeck.db.database import connection_options
from quarterdeck.db.migrate import migrate
from quarterdeck.events.model import EventBody, EventPage
from quarterdeck.runs.model import RunBody, RunState, SubmitKindBody
from quarterdeck.workspaces.service import FirstStart, first_start

_START_SECONDS = 30.0
_STOP_SECONDS = 20.0
_LOOK_SECONDS = 0.02
_WARM_UP_RUNS = 10
# How often an input is sent again after a 409.
_REPEATS = 5
_ACTIVE = (RunState.QUEUED, RunState.RUNNING, RunState.WAITING)

# The load of many teams comes from one key here. Requests are counted as usual, up to limits that nobody reaches.
HIGH_LIMITS: dict[str, object] = {
    "LIMIT_CREDENTIAL_PER_MINUTE": 1_000_000,
    "LIMIT_CREDENTIAL_BURST": 1_000_000,
    "LIMIT_WORKSPACE_PER_MINUTE": 1_000_000,
    "LIMIT_WORKSPACE_BURST": 1_000_000,
    "STREAM_PER_CREDENTIAL": 1_000,
}


class Server(Struct, frozen=True):
    """A database and the API on it. Workers are started by those who need them."""

    folder: Path
    database_url: str
    port: int
    # The process of `qd api`, whose children serve.
    process_id: int
    workspace_id: UUID
    key: str

    @contextmanager
    def worker(self, **settings: object) -> Iterator["subprocess.Popen[bytes]"]:
        """`settings` are environment variables without their prefix."""
        with _process(["worker"], self.database_url, self.folder, settings) as process:
            yield process

    @asynccontextmanager
    async def caller(self) -> AsyncIterator["Caller"]:
        wire = await Wire.connect(self.port)
        try:
            yield Caller(self, wire)
        finally:
            wire.close()

    async def statement(self, statement: LiteralString, *values: object) -> list[TupleRow]:
        """As the owner of the database. Outside a transaction, for VACUUM needs that."""
        async with await AsyncConnection.connect(self.database_url, autocommit=True) as connection:
            await connection.execute("SET search_path = app")
            cursor = await connection.execute(statement, values)
            return await cursor.fetchall() if cursor.description else []

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator["AsyncConnection[TupleRow]"]:
        """As the owner of the database."""
        async with await AsyncConnection.connect(self.database_url) as connection:
            await connection.execute("SET LOCAL search_path = app")
            yield connection

    async def settle(self) -> None:
        """What a large change leaves to be done is done before anything is measured."""
        await self.statement("VACUUM ANALYZE")
        await self.statement("CHECKPOINT")

    def submission(self, session_id: UUID, text: str) -> bytes:
        body = msgspec.json.encode({"type": "input", "text": text})
        return request("POST", f"/v1/sessions/{session_id}/events", self.key, body)


class Caller:
    """One client on one connection."""

    def __init__(self, server: Server, wire: Wire) -> None:
        self._server = server
        self._wire = wire

    async def new_sessions(self, count: int, model: str | None = None) -> list[UUID]:
        """With the worker's default model unless one is named."""
        body = msgspec.json.encode({"model": model} if model else {})
        return [UUID((await self.post("/v1/sessions", body))["id"]) for _ in range(count)]

    async def new_skills(self, count: int) -> list[UUID]:
        names = (msgspec.json.encode({"name": f"bench {uuid4()}"}) for _ in range(count))
        return [UUID((await self.post("/v1/skills", name))["id"]) for name in names]

    async def get(self, path: str) -> Any:
        ask = request("GET", path, self._server.key, Service_Workspace=str(self._server.workspace_id))
        return msgspec.json.decode(_checked(await self._wire.ask(ask)))

    async def post(self, path: str, body: bytes, media_type: str = "application/json") -> Any:
        ask = request("POST", path, self._server.key, body, media_type)
        return msgspec.json.decode(_checked(await self._wire.ask(ask)))

    async def submit(self, session_id: UUID, text: str) -> SubmitKindBody:
        ask = self._server.submission(session_id, text)
        answer = await self._wire.ask(ask)
        # As our clients do: on a busy machine, an input may have to wait too long for a lock.
        for _ in range(_REPEATS):
            if answer.status == HTTPStatus.CONFLICT:
                answer = await self._wire.ask(ask)
        return msgspec.json.decode(_checked(answer), type=SubmitKindBody)

    async def warm_up(self, model: str | None = None) -> None:
        """The first run also waits for a worker to be there, and for the library of its provider."""
        for session_id in await self.new_sessions(_WARM_UP_RUNS, model):
            await self.until_ended((await self.submit(session_id, QUICKLY)).run_id)

    async def run(self, run_id: UUID) -> RunBody:
        answer = _checked(await self._wire.ask(request("GET", f"/v1/runs/{run_id}", self._server.key)))
        return msgspec.json.decode(answer, type=RunBody)

    async def until_started(self, run_id: UUID) -> RunBody:
        return await self._until(run_id, lambda run: run.state is not RunState.QUEUED)

    async def until_waiting(self, run_id: UUID) -> RunBody:
        return await self._until(run_id, lambda run: run.state is RunState.WAITING)

    async def until_ended(self, run_id: UUID, seconds: float = _START_SECONDS) -> RunBody:
        return await self._until(run_id, lambda run: run.state not in _ACTIVE, seconds)

    async def _until(
        self, run_id: UUID, reached: Callable[[RunBody], bool], seconds: float = _START_SECONDS
    ) -> RunBody:
        deadline = monotonic() + seconds
        while not reached(run := await self.run(run_id)):
            assert monotonic() < deadline, f"the run is still {run.state}"
            await asyncio.sleep(0.02)
        return run

    async def log(self, session_id: UUID) -> list[EventBody]:
        events: list[EventBody] = []
        after: int | None = 0
        while after is not None:
            path = f"/v1/sessions/{session_id}/events?limit=200&after={after}"
            answer = _checked(await self._wire.ask(request("GET", path, self._server.key)))
            page = msgspec.json.decode(answer, type=EventPage)
            events += page.items
            after = page.next_cursor
        return events


@asynccontextmanager
async def serving(ground: Ground, **settings: object) -> AsyncIterator[Server]:
    """With default settings but for HIGH_LIMITS and these, which are environment variables without their prefix."""
    url = _new_database(ground.postgres_url)
    first = await _first_start(url)
    port = free_port()
    with _process(["api", "--port", str(port)], url, ground.folder, HIGH_LIMITS | settings) as process:
        await until_up(port, process)
        yield Server(ground.folder, url, port, process.pid, first.workspace_id, first.secret)


def _new_database(postgres_url: str) -> str:
    name = f"bench_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    url = make_conninfo(postgres_url, dbname=name)
    migrate(url)
    return url


async def _first_start(url: str) -> FirstStart:
    options = connection_options(DatabaseSettings())
    async with await AsyncConnection.connect(url, autocommit=True, options=options) as connection:
        first = await first_start(connection, KeySettings("bench"), SignInSettings())
    assert first is not None, "the database is new"
    return first


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def _process(
    arguments: list[str], url: str, folder: Path, settings: dict[str, object]
) -> Iterator["subprocess.Popen[bytes]"]:
    environment = clean_environment() | {"QUARTERDECK_DATABASE_URL": url, "QUARTERDECK_SERVER_DATA_DIR": str(folder)}
    environment |= {f"QUARTERDECK_{name}": str(value) for name, value in settings.items()}
    command = [sys.executable, "-m", "quarterdeck", *arguments]
    with started(command, environment, folder / f"{arguments[0]}.log") as process:
        yield process


def clean_environment() -> dict[str, str]:
    """Without settings that somebody has made for a server of their own."""
    return {name: value for name, value in os.environ.items() if not name.startswith("QUARTERDECK_")}


@contextmanager
def started(command: list[str], environment: Mapping[str, str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("ab") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def until_up(port: int, process: "subprocess.Popen[bytes]", path: str = "/readyz", key: str = "none") -> None:
    """Until a GET of `path` is answered with 200."""
    deadline = monotonic() + _START_SECONDS
    while True:
        assert process.poll() is None, f"the server ended with code {process.returncode}"
        assert monotonic() < deadline, "the server does not answer"
        try:
            wire = await Wire.connect(port)
            answer = await wire.ask(request("GET", path, key))
        except OSError:
            await asyncio.sleep(_LOOK_SECONDS)
            continue
        wire.close()
        if answer.status == 200:
            return
        await asyncio.sleep(_LOOK_SECONDS)


def _checked(answer: Answer) -> bytes:
    if answer.status not in (200, 201):
        raise BenchError(f"an answer of {answer.status}: {answer.body.decode()}")
    return answer.body
