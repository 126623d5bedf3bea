"""Clients that go on whatever happens, one request at a time each, and what each of them was answered, and when."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID

import msgspec
from bench.wire import Answer, Wire, request
from msgspec import Struct

from quarterdeck.core.errors import ErrorCode
from tests.world import World, bundle

# Far more than is promised: who waits for so long was not answered.
GIVE_UP_SECONDS = 60.0
SESSIONS = 32
STREAM = "open a stream"
UNKEYED = "submit"
KEYED = "submit, keyed"
# Between two requests of a client: the load is steady, and there is something left for the server.
_PAUSE_SECONDS = 0.15


class Asked(Struct, frozen=True):
    """One request. `status` 0: the connection broke or nobody answered."""

    kind: str
    port: int
    began: float
    ended: float
    status: int
    # Whether the answer is a success, or the error envelope with a code of the closed set.
    proper: bool

    @property
    def succeeded(self) -> bool:
        return 200 <= self.status < 300


class Ground(Struct, frozen=True):
    """What the requests are about."""

    key: str
    workspace_id: UUID
    sessions: list[str]
    skill_id: str

    @classmethod
    async def prepare(cls, world: World, sessions: int = SESSIONS) -> "Ground":
        made = [await world.new_session() for _ in range(sessions)]
        return cls(world.key, world.workspace_id, made, await world.new_skill())

    def session(self, number: int) -> str:
        return self.sessions[number % len(self.sessions)]


class Traffic:
    def __init__(self, name: str, ground: Ground, ports: list[int], clients: int) -> None:
        """`clients` of each kind at each port. The name tells their inputs from those of others in these sessions."""
        self._name = name
        self.asked: list[Asked] = []
        # Texts of inputs that were accepted.
        self.accepted: set[str] = set()
        self._ground = ground
        self._places = [(kind, port, client) for kind in kinds(ground) for port in ports for client in range(clients)]
        self._over = False

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        clients = [asyncio.create_task(self._go_on(*place)) for place in self._places]
        try:
            yield
            self._over = True
            await asyncio.gather(*clients)
        finally:
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)

    async def _go_on(self, kind: str, port: int, client: int) -> None:
        written = kinds(self._ground)[kind]
        number = 0
        connection = _Connection(port)
        try:
            while not self._over:
                mark = f"{kind} {self._name} {port} {client} {number}"
                began = time.monotonic()
                ask = connection.open_stream if kind == STREAM else connection.ask
                answer = await ask(written(mark, number))
                asked = Asked(kind, port, began, time.monotonic(), answer.status, _is_proper(answer))
                self.asked.append(asked)
                if asked.succeeded:
                    self.accepted.add(mark)
                # What has an Idempotency-Key is sent again until it is done.
                number += asked.succeeded or kind == UNKEYED
                await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            connection.close()

    async def misstored(self, world: World) -> tuple[int, int]:
        """Inputs that were accepted and are not in a log, and those that are in it twice."""
        inputs = {mark for mark in self.accepted if mark.startswith(UNKEYED)}
        return await misstored(world, inputs)


async def misstored(world: World, texts: set[str]) -> tuple[int, int]:
    """Of these inputs: how many are not in a log, and how many of all are in it twice."""
    query = """
        SELECT e.data->>'text' FROM session_events e JOIN sessions s ON s.id = e.session_id
        WHERE s.workspace_id = %s AND e.type = 'input.accepted'
    """
    stored = Counter(text for (text,) in await world.fetch(query, world.workspace_id))
    return sum(not stored[text] for text in texts), sum(count > 1 for count in stored.values())


def kinds(ground: Ground) -> dict[str, Callable[[str, int], bytes]]:
    """How a request of each kind is written, from a mark of its own and its number."""
    key, workspace = ground.key, str(ground.workspace_id)
    # The same archive: what is measured is the way of a push and not the disk.
    archive = bundle()

    def submit(mark: str, number: int, **headers: str) -> bytes:
        body = msgspec.json.encode({"type": "input", "text": mark})
        return request("POST", f"/v1/sessions/{ground.session(number)}/events", key, body, **headers)

    def create_key(mark: str, number: int) -> bytes:
        body = msgspec.json.encode({"label": mark, "permissions": ["workspace.read"]})
        return request("POST", "/v1/api-keys", key, body, Idempotency_Key=mark)

    def push(mark: str, number: int) -> bytes:
        path = f"/v1/skills/{ground.skill_id}/versions"
        return request("POST", path, key, archive, "application/gzip", Idempotency_Key=mark)

    def log_of(number: int, **headers: str) -> bytes:
        return request("GET", f"/v1/sessions/{ground.session(number)}/events?limit=20", key, b"", **headers)

    return {
        "read a session": lambda _, number: request("GET", f"/v1/sessions/{ground.session(number)}", key),
        "list keys": lambda _, __: request("GET", "/v1/api-keys?limit=20", key, Service_Workspace=workspace),
        "read a log": lambda _, number: log_of(number),
        STREAM: lambda _, number: log_of(number, Accept="text/event-stream"),
        UNKEYED: submit,
        KEYED: lambda mark, number: submit(mark, number, Idempotency_Key=mark),
        "create a key": create_key,
        "push a version": push,
    }


class _Connection:
    """Kept open, and opened again after it broke."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._wire: Wire | None = None

    async def ask(self, asking: bytes) -> Answer:
        try:
            async with asyncio.timeout(GIVE_UP_SECONDS):
                if self._wire is None:
                    self._wire = await Wire.connect(self._port)
                return await self._wire.ask(asking)
        except (OSError, TimeoutError):
            self.close()
            return Answer(0, b"")

    async def open_stream(self, asking: bytes) -> Answer:
        """Answered is who has the head of the stream."""
        try:
            async with asyncio.timeout(GIVE_UP_SECONDS):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except (OSError, TimeoutError):
            return Answer(0, b"")
        try:
            async with asyncio.timeout(GIVE_UP_SECONDS):
                writer.write(asking)
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                status = int(head[9:12])
                if b"content-length:" in head:
                    length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
                    return Answer(status, await reader.readexactly(length))
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return Answer(0, b"")
        finally:
            writer.close()
        return Answer(status, b"")

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None


def _is_proper(answer: Answer) -> bool:
    if 200 <= answer.status < 300:
        return True
    with suppress(msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        body: Any = msgspec.json.decode(answer.body)
        return set(body) == {"error"} and set(body["error"]) == {"code", "message"} and body["error"]["code"] in _CODES
    return False


_CODES = frozenset(map(str, ErrorCode))
