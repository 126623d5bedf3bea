"""The primary is lost under load and the replica promoted: how soon everything is served again, and what is lost.

Clients send inputs as fast as they are acknowledged, each with an Idempotency-Key, and repeat what fails. Every
acknowledged input is looked for afterwards. Settings are the defaults.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from uuid import uuid4

import httpx
from bench.figures import Figure
from msgspec import Struct

from tests.fleet.recovery import RECOVERY_SECONDS, wait_for_recovery, wait_until_serving
from tests.simulation.database import Replication
from tests.simulation.hosts import HostOptions, SimulatedHosts, running_hosts
from tests.simulation.scenario import DETECTION_SECONDS

WRITERS = 16
# Each has a run under way that is interrupted.
LONG_RUNS = 8
_LONG_RUN = "demo: steps 99\ndemo: slow 1"
# The replica of the third mode has received nothing for this long when the primary is lost.
BEHIND_SECONDS = 5.0
_LOAD_SECONDS = 10.0
# Writers go on for this long after everything is served.
_AFTER_SECONDS = 2.0


class Mode(StrEnum):
    SYNCHRONOUS = "synchronous"
    ASYNCHRONOUS = "asynchronous"
    BEHIND = f"asynchronous, replica cut off for the last {BEHIND_SECONDS:g} s"


class SentInput(Struct):
    # The first attempt, and the acknowledgement (monotonic seconds).
    began: float
    acknowledged: float | None = None


class FailoverResult(Struct, frozen=True, kw_only=True):
    mode: Mode
    acknowledged: int
    acknowledged_before: int
    # In the seconds before the loss, with the replica connected.
    per_second_before: float
    lost: int
    # How long before the loss of the primary the first of them was acknowledged.
    oldest_lost_seconds: float
    stored_twice: int
    slowest_answer_seconds: float
    # From the loss of the primary. The first one is the promotion.
    promoted_seconds: float
    first_acknowledged_seconds: float
    last_failure_seconds: float
    # Every API accepts an input and its run succeeds.
    new_runs_seconds: float
    # The same, and every interrupted run has progressed.
    full_service_seconds: float

    def figures(self) -> list[Figure]:
        may_lose = self.mode is not Mode.SYNCHRONOUS
        return [
            Figure(f"{self.mode}: inputs acknowledged before the loss", self.acknowledged_before, ""),
            Figure("  … per second, before the loss", self.per_second_before, "/s"),
            Figure("  … of all acknowledged inputs, lost", self.lost, "", None if may_lose else 0),
            Figure("  … the first of them acknowledged before the loss", self.oldest_lost_seconds, "s"),
            Figure("  … inputs stored twice", self.stored_twice, "", 0),
            Figure("  … slowest answer", self.slowest_answer_seconds, "s", 5.0),
            Figure("  … loss → replica promoted", self.promoted_seconds, "s"),
            Figure("  … loss → first acknowledged input", self.first_acknowledged_seconds, "s"),
            Figure("  … loss → last failed request", self.last_failure_seconds, "s"),
            Figure("  … loss → new runs on every API", self.new_runs_seconds, "s"),
            Figure(
                "  … loss → full service, interrupted runs progress", self.full_service_seconds, "s", RECOVERY_SECONDS
            ),
        ]


class Writers:
    """Clients that send inputs to a session each, and repeat what fails."""

    def __init__(self, hosts: SimulatedHosts) -> None:
        self.sent: dict[str, SentInput] = {}
        # When they ended, and how long answers took.
        self.failures: list[float] = []
        self.answer_seconds: list[float] = []
        self._hosts = hosts
        self._stopping = False
        headers = {"Authorization": f"Bearer {hosts.key}"}
        self._http = httpx.AsyncClient(headers=headers, timeout=20.0, limits=httpx.Limits(max_connections=None))
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        for number in range(WRITERS + LONG_RUNS):
            api = self._hosts.apis[number % len(self._hosts.apis)]
            session = await self._http.post(f"{api.url}/v1/sessions", json={"title": "failover"})
            path = f"/v1/sessions/{session.raise_for_status().json()['id']}/events"
            if number < WRITERS:
                self._tasks.append(asyncio.create_task(self._write(number, path)))
            else:
                body = {"type": "input", "text": _LONG_RUN}
                (await self._http.post(api.url + path, json=body)).raise_for_status()

    async def stop(self) -> None:
        """Every input under way is acknowledged first."""
        self._stopping = True
        async with asyncio.timeout(RECOVERY_SECONDS):
            await asyncio.gather(*self._tasks)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.aclose()

    def acknowledged_between(self, start: float, end: float) -> list[float]:
        moments = [one.acknowledged for one in self.sent.values() if one.acknowledged is not None]
        return sorted(moment for moment in moments if start <= moment < end)

    async def _write(self, number: int, path: str) -> None:
        while not self._stopping:
            token = uuid4().hex
            sent = self.sent[token] = SentInput(time.monotonic())
            while sent.acknowledged is None:
                number += 1
                api = self._hosts.apis[number % len(self._hosts.apis)]
                sent.acknowledged = await self._send(api.url + path, token)

    async def _send(self, url: str, token: str) -> float | None:
        """The moment of the acknowledgement. None after a failure and a pause."""
        began = time.monotonic()
        body, headers = {"type": "input", "text": token}, {"Idempotency-Key": token}
        try:
            answer = await self._http.post(url, json=body, headers=headers)
        except httpx.TransportError:
            self.failures.append(time.monotonic())
        else:
            now = time.monotonic()
            self.answer_seconds.append(now - began)
            if answer.status_code == 200:
                return now
            # A run takes a limited number of inputs that it has not consumed yet.
            if answer.status_code != 429:
                self.failures.append(now)
        await asyncio.sleep(0.1)
        return None


async def measure_failover(folder: Path, mode: Mode, show: Callable[[str], None]) -> FailoverResult:
    show(f"failover, {mode}: starting nine hosts")
    replication = Replication.SYNCHRONOUS if mode is Mode.SYNCHRONOUS else Replication.ASYNCHRONOUS
    async with running_hosts(folder, HostOptions(replication=replication)) as hosts:
        writers = Writers(hosts)
        try:
            await writers.start()
            show(f"failover, {mode}: load")
            began = time.monotonic()
            await asyncio.sleep(_LOAD_SECONDS)
            loaded = time.monotonic()
            show(f"failover, {mode}: the primary is lost")
            lost, promoted = await _fail_over(hosts, mode)
            serving, full_service = await asyncio.gather(_serving(hosts), _recovered(hosts))
            await asyncio.sleep(_AFTER_SECONDS)
            await writers.stop()
            stored = await _stored_inputs(hosts)
        finally:
            await writers.close()
    gone = [
        sent.acknowledged for token, sent in writers.sent.items() if sent.acknowledged is not None and not stored[token]
    ]
    # Not from the loss on: acknowledgements that were under way still arrive.
    after = writers.acknowledged_between(lost + DETECTION_SECONDS, full_service + RECOVERY_SECONDS)
    return FailoverResult(
        mode=mode,
        acknowledged=len(writers.acknowledged_between(0, full_service + RECOVERY_SECONDS)),
        acknowledged_before=len(writers.acknowledged_between(0, lost)),
        per_second_before=len(writers.acknowledged_between(began, loaded)) / (loaded - began),
        lost=len(gone),
        oldest_lost_seconds=lost - min(gone) if gone else 0.0,
        stored_twice=sum(stored[token] > 1 for token in writers.sent),
        slowest_answer_seconds=max(writers.answer_seconds),
        promoted_seconds=promoted - lost,
        first_acknowledged_seconds=after[0] - lost,
        last_failure_seconds=max(writers.failures, default=lost) - lost,
        new_runs_seconds=serving - lost,
        full_service_seconds=full_service - lost,
    )


async def _fail_over(hosts: SimulatedHosts, mode: Mode) -> tuple[float, float]:
    """When the primary was lost, and when the replica had been promoted."""
    if mode is Mode.BEHIND:
        hosts.replica.host.cut_off()
        await asyncio.sleep(BEHIND_SECONDS)
    lost = time.monotonic()
    await asyncio.to_thread(hosts.primary.lose)
    if mode is Mode.BEHIND:
        hosts.replica.host.heal()
    await asyncio.sleep(DETECTION_SECONDS)
    await asyncio.to_thread(hosts.replica.promote)
    return lost, time.monotonic()


async def _serving(hosts: SimulatedHosts) -> float:
    """The moment at which new runs succeed, whichever API accepts them."""
    async with asyncio.timeout(RECOVERY_SECONDS):
        await asyncio.gather(*(wait_until_serving(hosts, api) for api in hosts.apis))
    return time.monotonic()


async def _recovered(hosts: SimulatedHosts) -> float:
    assert await wait_for_recovery(hosts) is not None, f"not recovered within {RECOVERY_SECONDS:g} s"
    return time.monotonic()


async def _stored_inputs(hosts: SimulatedHosts) -> Counter[str]:
    """How often each text is stored."""
    query = "SELECT data->>'text', count(*) FROM session_events WHERE type = 'input.accepted' GROUP BY 1"
    return Counter(dict(await hosts.fetch(query)))
