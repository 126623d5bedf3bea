"""An honest team on a server that another workspace attacks.

A test gets two workspaces on a running `qd serve` and gives its attack to `attacked`, which measures the neighbour
without and with the attack. Durations are reported, not asserted: machines that run tests are busy.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import msgspec
from msgspec import Struct, field

from tests.sse import EventReader
from tests.world import Server, World, bundle, serving

ROUNDS = 5
# Only a failure takes this long.
PATIENCE_SECONDS = 30.0
# Enough to fail a test, and to see what is refused.
ENOUGH_REFUSALS = 5
# For an attack to reach its full strength.
STRENGTH_SECONDS = 1.0
_RUN_ENDS = ("run.succeeded", "run.failed", "run.cancelled")


class Served(Struct):
    """How the requests of the neighbour were answered."""

    # Rounds in which every request was answered as expected.
    rounds: int = 0
    # Durations of the expected answers by kind of request.
    seconds: dict[str, list[float]] = field(default_factory=dict)
    # One line for each other answer.
    refusals: list[str] = field(default_factory=list)


class Comparison(Struct, frozen=True):
    quiet: Served
    attacked: Served

    def check(self, rounds: int = ROUNDS) -> None:
        """Every request of the neighbour was answered as without the attack: no 5xx and no 429."""
        assert self.quiet.refusals == [], "refused although nobody attacks"
        assert self.attacked.refusals == [], "refused during the attack"
        assert min(self.quiet.rounds, self.attacked.rounds) >= rounds

    def lines(self) -> list[str]:
        """A table: p99 of each kind of request in milliseconds, without and with the attack."""
        lines = [f"{'':16}{'quiet':>10}{'attacked':>10}{'factor':>8}"]
        for kind, seconds in self.quiet.seconds.items():
            quiet_ms, attacked_ms = p99_ms(seconds), p99_ms(self.attacked.seconds.get(kind, []))
            lines.append(f"{kind:16}{quiet_ms:10.1f}{attacked_ms:10.1f}{attacked_ms / quiet_ms:8.1f}")
        return [*lines, *(f"refused: {line}" for line in self.attacked.refusals)]


class Neighbour:
    """Sends every request on a new connection: one that was opened before the attack would prove little."""

    def __init__(self, world: World, report: Callable[[list[str]], None] = lambda _: None) -> None:
        self.world = world
        # Gets the lines of each comparison.
        self.report = report
        self._skill_id = ""
        self._version = 0
        self._served = Served()

    async def prepare(self) -> None:
        """Outside of what is measured: the first run also waits until the worker has started."""
        self._skill_id = await self.world.new_skill()
        await self._push()
        served = await self.work(1)
        assert served.refusals == []

    async def work(self, rounds: int) -> Served:
        """One request after the other. A refused one ends its step; the other steps go on."""
        served = self._served = Served()
        for _ in range(rounds):
            refused_before = len(served.refusals)
            for step in (self._look, self._talk, self._cancel, self._change_skill):
                with suppress(_Refused):
                    await step()
            served.rounds += len(served.refusals) == refused_before
            if len(served.refusals) >= ENOUGH_REFUSALS:
                break
        return served

    async def _look(self) -> None:
        await self._ask("healthz", 200, self.world.http.get("/healthz"))
        await self._ask("list sessions", 200, self.world.get("/v1/sessions"))
        await self._ask("list skills", 200, self.world.get("/v1/skills"))
        await self._ask("list keys", 200, self.world.list_keys())

    async def _talk(self) -> None:
        """A run, followed on the event stream until it has ended."""
        session_id = await self._new_session()
        path = f"/v1/sessions/{session_id}/events"
        headers = self.world.headers() | {"Accept": "text/event-stream"}
        with self._measured("stream"):
            stream = await self.world.http.send(
                self.world.http.build_request("GET", path, headers=headers), stream=True
            )
            if stream.status_code != 200:
                raise _Refused(f"{stream.status_code} {(await stream.aread()).decode()}")
        try:
            with self._measured("run"):
                submitted = await self._ask("submit", 200, self.world.submit(session_id))
                end = await _end_of_run(EventReader(stream), submitted["run_id"])
                if end != "run.succeeded":
                    raise _Refused(end)
        finally:
            await stream.aclose()
        await self._ask("read events", 200, self.world.get(path))

    async def _cancel(self) -> None:
        session_id = await self._new_session()
        submitted = await self._ask("submit", 200, self.world.submit(session_id, "demo: slow 20"))
        cancelled = await self._ask("cancel", 200, self.world.post(f"/v1/runs/{submitted['run_id']}/cancel", {}))
        if cancelled["state"] != "cancelled":
            self._served.refusals.append(f"cancel: the run is {cancelled['state']}")

    async def _change_skill(self) -> None:
        await self._push()
        base, head = self._version - 1, self._version
        skill = f"/v1/skills/{self._skill_id}"
        await self._ask("download file", 200, self.world.get(f"{skill}/versions/{head}/file?path=SKILL.md"), json=False)
        await self._ask("download bundle", 200, self.world.get(f"{skill}/versions/{head}/bundle"), json=False)
        await self._ask("diff", 200, self.world.get(f"{skill}/diff?base={base}&head={head}"))

    async def _push(self) -> None:
        archive = bundle(notes=f"{uuid4()}\n")
        pushed = await self._ask("push", 201, self.world.push(self._skill_id, archive))
        self._version = pushed["version"]

    async def _new_session(self) -> str:
        session = await self._ask("create session", 201, self.world.post("/v1/sessions", {}))
        session_id: str = session["id"]
        return session_id

    async def _ask(self, kind: str, expected: int, sent: Awaitable[httpx.Response], *, json: bool = True) -> Any:
        """The body. Raises `_Refused` for every other status."""
        with self._measured(kind):
            answer = await sent
            if answer.status_code != expected:
                raise _Refused(f"{answer.status_code} {answer.text}")
        return msgspec.json.decode(answer.content) if json else answer.content

    @contextmanager
    def _measured(self, kind: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        except _Refused as refused:
            if not refused.is_recorded:
                self._served.refusals.append(f"{kind}: {refused}")
                refused.is_recorded = True
            raise
        except (httpx.TransportError, TimeoutError) as fault:
            self._served.refusals.append(f"{kind}: {type(fault).__name__} after {time.perf_counter() - began:.1f} s")
            raise _Refused(is_recorded=True) from fault
        self._served.seconds.setdefault(kind, []).append(time.perf_counter() - began)


class Tenants(Struct, frozen=True):
    server: Server
    attacker: World
    neighbour: Neighbour


@asynccontextmanager
async def two_tenants(database_url: str, data_dir: Path, **settings: object) -> AsyncIterator[Tenants]:
    """Runs `qd serve` on an empty migrated database. Default settings but for these, which are environment variables
    without their prefix, and the pauses of the demo model, which would only lengthen the tests."""
    given: dict[str, object] = {"MODEL_DEMO_PAUSE_SECONDS": 0} | settings
    with serving(database_url, data_dir, ("-m", "quarterdeck", "serve"), **given) as server:
        # A client each: neither waits for a connection in the pool of the other. The connections of the attacker do not
        # expire: its requests are cancelled in the end, and the library leaves a connection open if it is cancelled
        # while it closes expired ones.
        async with (
            httpx.AsyncClient(
                base_url=server.url, timeout=PATIENCE_SECONDS, limits=httpx.Limits(keepalive_expiry=None)
            ) as attacking,
            httpx.AsyncClient(
                base_url=server.url, timeout=PATIENCE_SECONDS, limits=httpx.Limits(max_keepalive_connections=0)
            ) as honest,
        ):
            attacker = await World.create(database_url, attacking)
            neighbour = Neighbour(await World.create(database_url, honest))
            await neighbour.prepare()
            yield Tenants(server, attacker, neighbour)


async def attacked(
    neighbour: Neighbour, attack: AbstractAsyncContextManager[object], *, rounds: int = ROUNDS
) -> Comparison:
    """The neighbour without the attack, then during it. Entering the context manager starts the attack and returns
    when it is at full strength; leaving it ends the attack."""
    quiet = await neighbour.work(rounds)
    async with attack:
        during = await neighbour.work(rounds)
    found = Comparison(quiet, during)
    neighbour.report(found.lines())
    return found


@asynccontextmanager
async def repeated(action: Callable[[], Awaitable[object]], at_once: int) -> AsyncIterator[None]:
    """An attack: as many tasks perform the action again and again. Broken connections do not stop it; any other
    exception fails the test."""

    async def repeat() -> None:
        while True:
            with suppress(httpx.TransportError, OSError, EOFError):
                await action()
            # Also with an action that fails at once, others get their turn.
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(repeat()) for _ in range(at_once)]
        await asyncio.sleep(STRENGTH_SECONDS)
        yield
        for task in tasks:
            task.cancel()


def p99_ms(seconds: list[float]) -> float:
    """nan without values."""
    return sorted(seconds)[math.ceil(0.99 * len(seconds)) - 1] * 1000 if seconds else math.nan


class _Refused(Exception):
    def __init__(self, answer: str = "", *, is_recorded: bool = False) -> None:
        super().__init__(answer)
        self.is_recorded = is_recorded


async def _end_of_run(reader: EventReader, run_id: str) -> str:
    """The type of the event that ended the run."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (message := await reader.next()) is not None:
            if message.event in _RUN_ENDS and message.data["run_id"] == run_id:
                return message.event
    raise _Refused("the stream ended before the run")
