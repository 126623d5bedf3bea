"""A model in the test's hands, and a session's lock in them too: together they stop a worker at any moment of a run.

The stand-in speaks OpenAI's chat completions and responses and Anthropic's messages. Each session has a model name of
its own, and with it replies of its own.
"""

import asyncio
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from psycopg import AsyncConnection

from tests.contract.provider_server import (
    ANTHROPIC,
    OPENAI,
    RESPONSES,
    Event,
    Reply,
    Wire,
    accepted_request,
    begin_stream,
    send_events,
    streams,
)
from tests.workers import eventually
from tests.world import START_SECONDS, World

FIRST, LAST = "Let me see.", "Done."
# What a run writes under its session's lock when the model makes one call and then answers, in this order.
# The run takes its first inputs when it begins, and is finished together with its answer.
WRITES = ("begin", "store call", "store result", "take again", "store answer")


def call_then_answer() -> list[Reply]:
    return [streams(OPENAI.calls(FIRST, ("call_1", "current_time", "{}"))), streams(OPENAI.text(LAST))]


class Gate:
    """Where a reply waits for the test."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self.client_left = asyncio.Event()

    async def is_reached(self) -> None:
        await asyncio.wait_for(self.reached.wait(), START_SECONDS)

    def reply(self, before: Sequence[Event] = (), after: Reply | None = None) -> Reply:
        """The beginning of a stream, a stop until the gate opens, and its end. With `after`: a stop, then that."""
        events, rest = (before[: -OPENAI.closing], before[-OPENAI.closing :]) if before else ([], [])

        async def reply(wire: Wire) -> None:
            if events:
                await begin_stream(wire, events)
            self.reached.set()
            await self._wait(wire)
            if after is None:
                await send_events(wire, rest)
                wire.writer.write(b"0\r\n\r\n")
                await wire.writer.drain()
            else:
                await after(wire)

        return reply

    async def _wait(self, wire: Wire) -> None:
        leaving = asyncio.create_task(wire.reader.readexactly(1))
        opening = asyncio.create_task(self.opened.wait())
        try:
            await asyncio.wait({leaving, opening}, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                self.client_left.set()
                leaving.result()
        finally:
            leaving.cancel()
            opening.cancel()
            await asyncio.gather(leaving, opening, return_exceptions=True)


def asking(door: socket.socket) -> dict[str, object]:
    """The settings of a worker that asks the stand-in behind this door."""
    return {"MODEL_OPENAI_BASE_URL": f"http://127.0.0.1:{door.getsockname()[1]}/v1", "MODEL_RETRY_BASE_SECONDS": 0.05}


class StandIn:
    """Answers each request for a model with the next of that model's replies, then with a plain one for ever."""

    def __init__(self) -> None:
        self.replies: defaultdict[str, list[Reply]] = defaultdict(list)
        self.asked: defaultdict[str, list[list[Any]]] = defaultdict(list)
        self.bodies: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self._connections: set[asyncio.Task[None]] = set()

    def texts(self, model: str) -> list[list[str]]:
        """Of each request what the users said in it."""
        return [
            [text for message in asked if message["role"] == "user" for text in message["content"].split("\n\n")]
            for asked in self.asked[model]
        ]

    @classmethod
    @asynccontextmanager
    async def running(cls, door: socket.socket) -> AsyncIterator[Self]:
        """Behind a socket that listens already, and goes on when this ends: one worker can serve several tests."""
        stand_in = cls()
        server = await asyncio.start_server(stand_in._accept, sock=door.dup())
        try:
            yield stand_in
        finally:
            server.close()
            for connection in stand_in._connections:
                connection.cancel()
            await asyncio.gather(*stand_in._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(asyncio.create_task(self._serve(Wire(reader, writer))))

    async def _serve(self, wire: Wire) -> None:
        try:
            while not wire.writer.is_closing():
                request = await accepted_request(wire)
                body = request.body
                self.asked[body["model"]].append(body["messages"] if "messages" in body else body["input"])
                self.bodies[body["model"]].append(body)
                replies = self.replies[body["model"]]
                dialect = next(one for one in (OPENAI, RESPONSES, ANTHROPIC) if request.path.startswith(one.path))
                await (replies.pop(0) if replies else streams(dialect.text(LAST)))(wire)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            wire.writer.transport.abort()


async def new_session(world: World, model: str) -> str:
    answer = await world.post("/v1/sessions", {"model": f"openai-chat:{model}", "sandbox": None})
    assert answer.status_code == 201, answer.text
    session_id: str = answer.json()["id"]
    return session_id


# Who holds the session's lock or waits for it.
_HELD = """
SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND (classid::bigint << 32) | objid::bigint = app.session_lock(%s)
"""
# Who waits, in a queue: PostgreSQL serves it first come, first served.
_WAITING = _HELD + "AND NOT granted"


class Brake:
    """Holds a session's lock and lets its writers pass one by one."""

    def __init__(self, world: World, session_id: str) -> None:
        self.session_id = session_id
        self._world = world
        self._holder: AsyncConnection[tuple[Any, ...]] | None = None
        self._watcher: AsyncConnection[tuple[Any, ...]]

    async def __aenter__(self) -> Self:
        self._watcher = await self._connect()
        self._holder = await self._connect()
        await self._lock(self._holder)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release()
        await self._watcher.close()

    async def release(self) -> None:
        if self._holder is not None:
            await self._holder.close()
            self._holder = None

    async def waiting(self, count: int = 1) -> None:
        """Until so many stand before the lock."""

        async def look() -> bool:
            return len(await (await self._watcher.execute(_WAITING, (self.session_id,))).fetchall()) == count

        await eventually(look, START_SECONDS)

    async def drop_waiting(self) -> None:
        """Ends the connections of those who wait. What they were about to write is not written, unlike that of a client
        that is gone: PostgreSQL notices this only after the statement."""

        async def look() -> bool:
            rows = await (await self._watcher.execute(_WAITING, (self.session_id,))).fetchall()
            for (pid,) in rows:
                await self._watcher.execute("SELECT pg_terminate_backend(%s)", (pid,))
            return not rows

        await eventually(look, START_SECONDS)

    async def let_last_pass(self) -> None:
        """Releases the lock, until those who waited have written or failed."""

        async def look() -> bool:
            return not await (await self._watcher.execute(_HELD, (self.session_id,))).fetchall()

        await self.release()
        await eventually(look, START_SECONDS)

    async def let_pass(self, count: int = 1) -> None:
        """Those who wait, of which there must be so many, write; who comes after them waits again."""
        await self.waiting(count)
        follower = await self._connect()
        locking = asyncio.create_task(self._lock(follower))
        await self.waiting(count + 1)
        await self.release()
        await asyncio.wait_for(locking, START_SECONDS)
        self._holder = follower

    async def _connect(self) -> AsyncConnection[tuple[Any, ...]]:
        # Without the limits that the service sets for its own connections.
        return await AsyncConnection.connect(self._world.database_url, autocommit=True)

    async def _lock(self, connection: AsyncConnection[tuple[Any, ...]]) -> None:
        await connection.execute("SELECT pg_advisory_lock(app.session_lock(%s))", (self.session_id,))


async def walk_to(brake: Brake, write: str) -> None:
    """Until the worker stands right before this write."""
    for _ in WRITES[: WRITES.index(write)]:
        await brake.let_pass()
    await brake.waiting()
