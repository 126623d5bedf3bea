"""A mixed day's work in small: conversations with runs, reads, pushes, keys, readers who come and go."""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import msgspec
from bench.wire import Answer, Wire, request
from msgspec import Struct

from tests.world import World, bundle

# Only a fault takes this long.
_ACTION_SECONDS = 60.0
_SKILLS = 20
_BUNDLES = 50
# Then the connection is closed: clients come and go too.
_REQUESTS_A_CONNECTION = 200
_RECENT = 200


class Failed(Exception):
    """An answer that was not a success."""


class _Place(Struct):
    wire: Wire
    port: int
    asked: int = 0


class Workload:
    def __init__(self, key: str, workspace_id: str, ports: list[int], skills: list[str]) -> None:
        self.requests = 0
        self.done: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self._key = key
        self._workspace_id = workspace_id
        self._ports = ports
        self._skills = skills
        self._bundles = [bundle(note=f"content {number}") for number in range(_BUNDLES)]
        self._free: list[_Place] = []
        self._recent: deque[str] = deque(maxlen=_RECENT)
        # Weights: what callers of such a service do most.
        self._actions: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self._converse, 6),
            (self._list_keys, 4),
            (self._list_sessions, 4),
            (self._read_along_and_leave, 2),
            (self._push, 1),
            (self._download, 1),
            (self._create_and_revoke_key, 1),
        ]

    @classmethod
    async def prepare(cls, world: World, ports: list[int]) -> "Workload":
        skills = []
        for number in range(_SKILLS):
            answer = await world.post("/v1/skills", {"name": f"skill-{number}"})
            skills.append(answer.json()["id"])
            assert (await world.push(skills[-1], bundle())).status_code == 201
        return cls(world.key, str(world.workspace_id), ports, skills)

    async def act(self) -> None:
        """One action, drawn by chance. Never raises: what fails is counted."""
        (action,) = random.choices(*zip(*self._actions, strict=True))
        name = action.__name__.strip("_")
        try:
            async with asyncio.timeout(_ACTION_SECONDS):
                await action()
            self.done[name] += 1
        except (Failed, OSError, TimeoutError, asyncio.IncompleteReadError) as fault:
            self.failures[f"{name}: {type(fault).__name__} {fault}"[:200]] += 1

    def close(self) -> None:
        for place in self._free:
            place.wire.close()

    async def _converse(self) -> None:
        session_id = (await self._sent("POST", "/v1/sessions", {}))["id"]
        self._recent.append(session_id)
        path = f"/v1/sessions/{session_id}/events"
        reader, writer = await self._stream(path)
        try:
            await self._sent("POST", path, _input("Look at this, please."))
            if random.random() < 0.5:
                await self._sent("POST", path, _input("And at that."), Idempotency_Key=uuid4().hex)
            while b"run.succeeded" not in await reader.readline():
                if reader.at_eof():
                    raise Failed("the stream ended before the run")
        finally:
            writer.close()
        await self._sent("GET", f"{path}?limit=100")
        if random.random() < 0.5:
            with suppress(ValueError):
                self._recent.remove(session_id)
            await self._sent("DELETE", f"/v1/sessions/{session_id}")

    async def _list_keys(self) -> None:
        await self._sent("GET", "/v1/api-keys?limit=20", Service_Workspace=self._workspace_id)

    async def _list_sessions(self) -> None:
        await self._sent("GET", "/v1/sessions?limit=20")

    async def _read_along_and_leave(self) -> None:
        if self._recent:
            reader, writer = await self._stream(f"/v1/sessions/{random.choice(self._recent)}/events")
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.readline(), 0.2)
            writer.close()

    async def _push(self) -> None:
        path = f"/v1/skills/{random.choice(self._skills)}/versions"
        archive = random.choice(self._bundles)
        await self._checked(request("POST", path, self._key, archive, "application/gzip", Idempotency_Key=uuid4().hex))

    async def _download(self) -> None:
        await self._checked(request("GET", f"/v1/skills/{random.choice(self._skills)}/versions/1/bundle", self._key))

    async def _create_and_revoke_key(self) -> None:
        created = await self._sent("POST", "/v1/api-keys", {"label": "soak", "permissions": ["workspace.read"]})
        await self._sent("POST", f"/v1/api-keys/{created['id']}/revoke", None)

    async def _sent(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        content = b"" if body is None else msgspec.json.encode(body)
        answer = await self._checked(request(method, path, self._key, content, **headers))
        return msgspec.json.decode(answer.body) if answer.body else None

    async def _checked(self, asking: bytes) -> Answer:
        place = await self._place()
        try:
            answer = await place.wire.ask(asking)
        except BaseException:
            place.wire.close()
            raise
        place.asked += 1
        self.requests += 1
        if place.asked < _REQUESTS_A_CONNECTION:
            self._free.append(place)
        else:
            place.wire.close()
        if not 200 <= answer.status < 300:
            raise Failed(f"{answer.status} {answer.body[:100]!r}")
        return answer

    async def _place(self) -> _Place:
        while self._free:
            place = self._free.pop()
            if not place.wire.is_closing:
                return place
        port = random.choice(self._ports)
        return _Place(await Wire.connect(port), port)

    async def _stream(self, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", random.choice(self._ports))
        try:
            writer.write(request("GET", path, self._key, Accept="text/event-stream"))
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests += 1
            # A session that was deleted meanwhile is no fault.
            if head[9:12] not in (b"200", b"404"):
                raise Failed(head[:100].decode(errors="replace"))
        except BaseException:
            writer.close()
            raise
        return reader, writer


def _input(text: str) -> dict[str, str]:
    return {"type": "input", "text": text}
