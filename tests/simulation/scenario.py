"""Hosts are cut off and lost one after another under load, and every promise is checked all the time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec import Struct

from tests.fleet.audited_load import AuditedLoad
from tests.fleet.history import History
from tests.fleet.process import ApiProcess
from tests.fleet.recovery import RECOVERY_SECONDS, wait_for_recovery, wait_until_serving
from tests.simulation.database import Replication
from tests.simulation.hosts import HostOptions, SimulatedHosts, running_hosts
from tests.simulation.network import Host

# A worker that is cut off for longer loses its runs to the others.
LEASE_SECONDS = 10.0
_REPLICA_CUT_SECONDS = 8.0
# TCP sends again after growing pauses, so a body that was under way may stall for longer than
# QUARTERDECK_HTTP_BODY_STALL_SECONDS: it is refused with 408, and the client sends the request again.
_API_CUT_SECONDS = 8.0
# A cluster manager needs a moment to be sure that the primary is lost.
DETECTION_SECONDS = 5.0
# Between two steps.
_PAUSE_SECONDS = 2.0


class Step(Struct, frozen=True):
    name: str
    # None: it was not measured, or took longer than RECOVERY_SECONDS, which is a violation.
    meanwhile_seconds: float | None
    after_seconds: float | None


class ScenarioReport(Struct, frozen=True, kw_only=True):
    seed: int
    seconds: float
    steps: list[Step]
    intents: int
    acknowledged: int
    answers: int
    outcomes: dict[str, int]
    # With the time for which the host of the API was cut off.
    slowest_answer_seconds: float
    checks: int
    violations: list[str]


class Scenario:
    def __init__(self, folder: Path, seed: int, show: Callable[[str], None]) -> None:
        """`show` is called with the name of each step."""
        self.history = History()
        self._folder = folder
        self._seed = seed
        self._show = show
        self._steps: list[Step] = []
        self._hosts: SimulatedHosts

    async def run(self) -> ScenarioReport:
        self._show("starting nine hosts, synchronous replication")
        options = HostOptions(replication=Replication.SYNCHRONOUS, settings={"WORKER_LEASE_SECONDS": LEASE_SECONDS})
        began = time.monotonic()
        async with running_hosts(self._folder, options) as self._hosts:
            try:
                async with AuditedLoad(self._hosts, self.history, self._seed) as load:
                    for step in self._all_steps():
                        await asyncio.sleep(_PAUSE_SECONDS)
                        for task in load.tasks:
                            assert not task.done(), task.result()
                        self._steps.append(await step())
                    self._show("the load ends; every session must settle")
                    await load.finish()
            finally:
                self.history.write(self._folder / "history.jsonl")
        answered = [one.seconds for one in self.history.attempts if one.outcome.isdigit()]
        return ScenarioReport(
            seed=self._seed,
            seconds=time.monotonic() - began,
            steps=self._steps,
            intents=len(self.history.intents),
            acknowledged=self.history.acknowledged(),
            answers=self.history.acknowledged_answers(),
            outcomes=self.history.outcomes(),
            slowest_answer_seconds=max(answered, default=0.0),
            checks=load.auditor.checks,
            violations=self.history.violations,
        )

    def _all_steps(self) -> list[Callable[[], Awaitable[Step]]]:
        return [
            self._cut_off_a_worker,
            self._cut_off_an_api,
            self._cut_off_the_replica,
            self._lose_a_worker,
            self._lose_the_primary,
        ]

    async def _cut_off_a_worker(self) -> Step:
        """For longer than its lease: its runs go on elsewhere, and it must not write to them when it is back."""
        host = self._hosts.worker_hosts[0]
        name = f"{host.name} is cut off until its runs go on elsewhere, and is connected again"
        self._show(name)
        host.cut_off()
        meanwhile = await self._recovery(name)
        host.heal()
        return Step(name, meanwhile, await self._recovery(name))

    async def _cut_off_an_api(self) -> Step:
        host, other = self._hosts.api_hosts[0], self._hosts.apis[1]
        name = f"{host.name} is cut off for {_API_CUT_SECONDS:g} s"
        self._show(name)
        meanwhile = await self._cut_off(host, _API_CUT_SECONDS, lambda: self._serving(other))
        return Step(name, meanwhile, await self._recovery(name))

    async def _cut_off_the_replica(self) -> Step:
        """No commit can be confirmed meanwhile, so nothing is served."""
        host = self._hosts.replica.host
        name = f"{host.name}, the replica, is cut off for {_REPLICA_CUT_SECONDS:g} s"
        self._show(name)
        await self._cut_off(host, _REPLICA_CUT_SECONDS)
        return Step(name, None, await self._recovery(name))

    async def _lose_a_worker(self) -> Step:
        host = self._hosts.worker_hosts[1]
        name = f"{host.name} is lost"
        self._show(name)
        host.lose()
        self._hosts.forget_worker(host)
        return Step(name, None, await self._recovery(name))

    async def _lose_the_primary(self) -> Step:
        primary, replica = self._hosts.primary, self._hosts.replica
        name = (
            f"{primary.host.name}, the primary, is lost; {replica.host.name} is promoted {DETECTION_SECONDS:g} s later"
        )
        self._show(name)
        await asyncio.to_thread(primary.lose)
        await asyncio.sleep(DETECTION_SECONDS)
        await asyncio.to_thread(replica.promote)
        return Step(name, None, await self._recovery(name))

    async def _cut_off(
        self, host: Host, cut_seconds: float, during: Callable[[], Awaitable[float]] | None = None
    ) -> float | None:
        began = time.monotonic()
        host.cut_off()
        seconds = None if during is None else await during()
        await asyncio.sleep(max(0.0, began + cut_seconds - time.monotonic()))
        host.heal()
        return seconds

    async def _serving(self, api: ApiProcess) -> float:
        began = time.monotonic()
        async with asyncio.timeout(RECOVERY_SECONDS):
            await wait_until_serving(self._hosts, api)
        return time.monotonic() - began

    async def _recovery(self, name: str) -> float | None:
        seconds = await wait_for_recovery(self._hosts)
        if seconds is None:
            self.history.add_violation(f"not recovered within {RECOVERY_SECONDS:g} s: {name}")
        return seconds
