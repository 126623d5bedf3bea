"""Callers who use the Python client and its retry rules: what they see fail, and what the client spares them."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import cast

from quarterdeck.core.actors import Permission

from quarterdeck.client import AsyncClient, QuarterdeckError
from quarterdeck.client.calls import Answer
from quarterdeck.client.errors import ConnectionFailed
from quarterdeck.client.model import Delta, Event
from quarterdeck.client.requests import Request
from quarterdeck.client.transfers import Download, Upload
from tests.uptime.traffic import Ground
from tests.world import World, bundle

_PAUSE_SECONDS = 0.06
# A follower comes back after a pause that grows to fifteen seconds.
_CATCH_UP_SECONDS = 30.0


class CountingClient(AsyncClient):
    """The client as it is, with a count of the tries that it makes up for."""

    failed_tries: Counter[str]

    async def _try(
        self, request: Request, upload: Upload | None, download: Download | None
    ) -> Answer | ConnectionFailed:
        outcome = await super()._try(request, upload, download)
        if isinstance(outcome, ConnectionFailed):
            self.failed_tries[str(outcome).partition("): ")[2] or str(outcome)] += 1
        elif outcome.status >= 400:
            self.failed_tries[f"status {outcome.status}"] += 1
        return outcome


class Callers:
    def __init__(self, url: str, ground: Ground) -> None:
        self.done: Counter[str] = Counter()
        # By what the caller did: what was raised to it.
        self.failures: list[str] = []
        self.failed_tries: Counter[str] = Counter()
        self.submitted: set[str] = set()
        self.labels: set[str] = set()
        self.versions: list[int] = []
        # By session, the events that its follower was given.
        self.followed: dict[str, list[int]] = {}
        self._url = url
        self._ground = ground
        self._over = False

    @asynccontextmanager
    async def calling(self, submitters: int) -> AsyncIterator[None]:
        """Ends each caller after the call that it is at."""
        work: list[Callable[[AsyncClient, int], Awaitable[None]]] = [
            *[self._submit] * submitters,
            *[self._read] * 2,
            self._push,
            self._create_key,
        ]
        tasks = [asyncio.create_task(self._repeat(number, one)) for number, one in enumerate(work)]
        try:
            yield
            self._over = True
            await asyncio.gather(*tasks)
        finally:
            await _end(tasks)

    @asynccontextmanager
    async def following(self, followers: int = 3) -> AsyncIterator[None]:
        """Each with a session of its own. `misread` waits until they have everything."""
        sessions = [self._ground.session(number) for number in range(followers)]
        tasks = [asyncio.create_task(self._follow(session_id)) for session_id in sessions]
        try:
            yield
        finally:
            await _end(tasks)

    def _client(self) -> CountingClient:
        client = CountingClient(self._url, self._ground.key, workspace_id=self._ground.workspace_id)
        client.failed_tries = self.failed_tries
        return client

    async def _repeat(self, number: int, work: Callable[[AsyncClient, int], Awaitable[None]]) -> None:
        name = work.__name__.strip("_")
        async with self._client() as client:
            for count in itertools.count():
                try:
                    await work(client, 1_000_000 * number + count)
                    self.done[name] += 1
                except QuarterdeckError as fault:
                    self.failures.append(f"{name}: {type(fault).__name__}: {fault}")
                if self._over:
                    return
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _submit(self, client: AsyncClient, number: int) -> None:
        text = f"input {number}"
        await client.submit_input(self._ground.session(number), text=text)
        self.submitted.add(text)

    async def _read(self, client: AsyncClient, number: int) -> None:
        session_id = self._ground.session(number)
        await client.get_session(session_id)
        await client.list_session_events(session_id, limit=20)
        await client.list_api_keys(limit=10)

    async def _push(self, client: AsyncClient, number: int) -> None:
        pushed = await client.push_skill_version(self._ground.skill_id, bundle())
        self.versions.append(pushed.version)

    async def _create_key(self, client: AsyncClient, number: int) -> None:
        label = f"key {number}"
        await client.create_api_key(label=label, permissions=[Permission.WORKSPACE_READ])
        self.labels.add(label)

    async def _follow(self, session_id: str) -> None:
        seen = self.followed[session_id] = []
        try:
            async with self._client() as client:
                stream = cast(AsyncGenerator[Event | Delta, None], client.events(session_id))
                async with aclosing(stream):
                    async for each in stream:
                        if isinstance(each, Event):
                            seen.append(each.id)
        except QuarterdeckError as fault:
            self.failures.append(f"follow: {type(fault).__name__}: {fault}")

    async def misread(self, world: World) -> int:
        """Events that a follower was not given within a while, or was given twice or in another order."""
        wrong = 0
        for session_id, seen in self.followed.items():
            query = "SELECT id FROM session_events WHERE session_id = %s ORDER BY id"
            logged = [id_ for (id_,) in await world.fetch(query, session_id)]
            deadline = time.monotonic() + _CATCH_UP_SECONDS
            while len(seen) < len(logged) and time.monotonic() < deadline:
                await asyncio.sleep(0.1)
            wrong += len(set(logged).symmetric_difference(seen)) + len(seen) - len(set(seen)) + (seen != sorted(seen))
        return wrong

    async def miscreated(self, world: World) -> int:
        """Keys and versions that were acknowledged and are not there once, numbers of versions that are missing."""
        query = "SELECT label FROM api_keys WHERE workspace_id = %s"
        keys = Counter(label for (label,) in await world.fetch(query, world.workspace_id))
        rows = await world.fetch("SELECT version FROM skill_versions WHERE skill_id = %s", self._ground.skill_id)
        versions = {version for (version,) in rows}
        gaps = set(range(1, len(versions) + 1)) ^ versions
        doubled = len(self.versions) - len(set(self.versions))
        return sum(keys[label] != 1 for label in self.labels) + len(set(self.versions) - versions) + len(gaps) + doubled


async def _end(tasks: list["asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
