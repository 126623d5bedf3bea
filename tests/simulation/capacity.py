"""What a session and a turn cost on each kind of host, and what slow commits do to the number of turns per second.

A turn is an input and its run: an instant model calls one tool and answers, or only answers. Few turns are under way at
a time, as in an installation that keeps up. Processor time is added up by host, so the figures depend less on other
work than rates do. What the hosts use without any load is measured too.
"""

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
from bench.figures import Figure
from msgspec import Struct
from psycopg import AsyncConnection

from quarterdeck.server.data_directory import binary, clean_environment
from tests.simulation.database import Replication
from tests.simulation.hosts import HostOptions, SimulatedHosts, running_hosts
from tests.simulation.network import Host

TURNS = 1500
SLOW_TURNS = 300
IDLE_SECONDS = 15
CLIENTS = 32
# Turns that have not ended.
MAX_UNDER_WAY = 64
# The time that a commit takes on a disk or to a replica that is not next to the processor.
SLOW_COMMIT_MS = 5
_CONTROL_CLIENTS = 16
_CONTROL_SECONDS = 5
_FINISH_SECONDS = 300.0
# Statistics of a connection appear once it has been idle for a second.
_STATISTICS_SECONDS = 2
_KINDS = ("API", "workers", "primary", "replica")
_CONTROL_TABLE = "CREATE TABLE public.control (number integer)"
_INSERT = "INSERT INTO public.control VALUES (1)"
_INSERT_AND_NOTIFY = f"WITH row AS ({_INSERT} RETURNING number) SELECT pg_notify('control', number::text) FROM row"
_NOTIFY = "SELECT pg_notify('control', '1')"
_INPUT = "What is the state of the deployment, and what should be done next?"
_INPUT_WITHOUT_CALL = f"{_INPUT}\ndemo: steps 0"


class Cost(Struct, frozen=True):
    """Of one session or turn, or of a second without load."""

    # Milliseconds of processor time by kind of host.
    milliseconds: dict[str, float]
    commits: float
    wal_bytes: float
    database_bytes: float

    def figures(self, name: str) -> list[Figure]:
        times = [Figure(f"  … {kind}, processor time", self.milliseconds[kind], "ms") for kind in _KINDS]
        return [
            Figure(f"{name}: processor time of all hosts", sum(self.milliseconds.values()), "ms"),
            *times,
            Figure("  … commits", self.commits, ""),
            Figure("  … WAL", self.wal_bytes / 1024, "KiB"),
            Figure("  … growth of the database", self.database_bytes / 1024, "KiB"),
        ]


class CapacityResult(Struct, frozen=True, kw_only=True):
    idle_second: Cost
    session: Cost
    turn: Cost
    # The model does not call a tool.
    short_turn: Cost
    events_per_turn: float
    turns_per_second: float
    slow_commit_turns_per_second: float
    # 409 with slow commits, for each turn.
    refused_per_turn: float
    # pgbench with slow commits: statements that insert, that insert and notify, and that only notify.
    inserts_per_second: float
    notifying_inserts_per_second: float
    notifications_per_second: float

    def figures(self) -> list[Figure]:
        slow = f"commits take {SLOW_COMMIT_MS} ms more"
        return [
            *self.idle_second.figures("a second without load"),
            *self.session.figures("a session is created"),
            *self.turn.figures("a turn"),
            Figure("  … events", self.events_per_turn, ""),
            *self.short_turn.figures("a turn without a tool call"),
            Figure("turns, all hosts on this machine", self.turns_per_second, "/s"),
            Figure(f"{slow}: turns", self.slow_commit_turns_per_second, "/s"),
            Figure("  … requests refused with 409 and repeated, for each turn", self.refused_per_turn, ""),
            Figure(f"{slow}: pgbench, {_CONTROL_CLIENTS} clients, inserts", self.inserts_per_second, "/s"),
            Figure("  … inserts with a notification", self.notifying_inserts_per_second, "/s"),
            Figure("  … notifications alone", self.notifications_per_second, "/s"),
        ]


class Usage(Struct, frozen=True):
    """All that was used since the start."""

    seconds: dict[str, float]
    commits: int
    wal_bytes: int
    database_bytes: int

    def cost(self, before: "Usage", count: int) -> Cost:
        return Cost(
            milliseconds={kind: (self.seconds[kind] - before.seconds[kind]) * 1000 / count for kind in _KINDS},
            commits=(self.commits - before.commits) / count,
            wal_bytes=(self.wal_bytes - before.wal_bytes) / count,
            database_bytes=(self.database_bytes - before.database_bytes) / count,
        )


async def measure_capacity(folder: Path, show: Callable[[str], None]) -> CapacityResult:
    show("capacity: starting nine hosts")
    async with (
        running_hosts(folder, HostOptions(replication=Replication.ASYNCHRONOUS)) as hosts,
        _client(hosts) as http,
    ):
        # What is made at first use is not counted.
        await _take_turns(hosts, http, await _create_sessions(hosts, http, 2 * CLIENTS))
        show("capacity: no load")
        idle = await _usage(hosts)
        await asyncio.sleep(IDLE_SECONDS - _STATISTICS_SECONDS)
        start = await _usage(hosts)
        show(f"capacity: {TURNS} sessions")
        sessions = await _create_sessions(hosts, http, TURNS)
        created = await _usage(hosts)
        show(f"capacity: {TURNS} turns")
        events = await _count_events(hosts)
        per_second, _ = await _take_turns(hosts, http, sessions)
        done = await _usage(hosts)
        events = await _count_events(hosts) - events
        show(f"capacity: {TURNS} turns without a tool call")
        start_short = await _usage(hosts)
        await _take_turns(hosts, http, sessions, _INPUT_WITHOUT_CALL)
        done_short = await _usage(hosts)
        show(f"capacity: {SLOW_TURNS} turns with slow commits")
        _slow_down_commits(hosts)
        slow_per_second, refused = await _take_turns(hosts, http, sessions[:SLOW_TURNS])
        show("capacity: pgbench with slow commits")
        with psycopg.connect(hosts.primary.url, autocommit=True) as connection:
            connection.execute(_CONTROL_TABLE)
        inserts = await asyncio.to_thread(_pgbench, hosts, folder / "insert.sql", _INSERT)
        notifying = await asyncio.to_thread(_pgbench, hosts, folder / "insert_and_notify.sql", _INSERT_AND_NOTIFY)
        notifications = await asyncio.to_thread(_pgbench, hosts, folder / "notify.sql", _NOTIFY)
    return CapacityResult(
        idle_second=start.cost(idle, IDLE_SECONDS),
        session=created.cost(start, TURNS),
        turn=done.cost(created, TURNS),
        short_turn=done_short.cost(start_short, TURNS),
        events_per_turn=events / TURNS,
        turns_per_second=per_second,
        slow_commit_turns_per_second=slow_per_second,
        refused_per_turn=refused / SLOW_TURNS,
        inserts_per_second=inserts,
        notifying_inserts_per_second=notifying,
        notifications_per_second=notifications,
    )


@asynccontextmanager
async def _client(hosts: SimulatedHosts) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {hosts.key}"}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(headers=headers, timeout=60, limits=limits) as http:
        yield http


async def _create_sessions(hosts: SimulatedHosts, http: httpx.AsyncClient, count: int) -> list[str]:
    ids: list[str] = []

    async def create(number: int) -> None:
        url = hosts.apis[number % len(hosts.apis)].url
        answer = await http.post(f"{url}/v1/sessions", json={"title": f"session {number}"})
        ids.append(answer.raise_for_status().json()["id"])

    await _for_each(range(count), create)
    return ids


async def _take_turns(
    hosts: SimulatedHosts, http: httpx.AsyncClient, sessions: Sequence[str], text: str = _INPUT
) -> tuple[float, int]:
    """One in each session. Returns turns per second, from the first input to the end of the last run, and the number of
    requests that were refused for a lock and repeated."""
    refused = 0

    async def submit(number: int) -> None:
        nonlocal refused
        url = f"{hosts.apis[number % len(hosts.apis)].url}/v1/sessions/{sessions[number]}/events"
        body = {"type": "input", "text": text}
        while (answer := await http.post(url, json=body)).status_code == 409:
            refused += 1
        answer.raise_for_status()

    began = time.monotonic()
    async with hosts.connect() as connection:
        for start in range(0, len(sessions), CLIENTS):
            await _wait_for_runs(connection, MAX_UNDER_WAY - CLIENTS)
            await _for_each(range(start, min(start + CLIENTS, len(sessions))), submit)
        await _wait_for_runs(connection, 0)
    seconds = time.monotonic() - began
    assert not await hosts.fetch("SELECT FROM runs WHERE state <> 'succeeded' LIMIT 1"), "a run has failed"
    return len(sessions) / seconds, refused


async def _wait_for_runs(connection: AsyncConnection[tuple[Any, ...]], count: int) -> None:
    """Until at most so many have not ended. On one connection: to open one costs more than the query."""
    deadline = time.monotonic() + _FINISH_SECONDS
    query = "SELECT FROM runs WHERE state IN ('pending', 'queued', 'running')"
    while len(await (await connection.execute(query)).fetchall()) > count:
        assert time.monotonic() < deadline, "the runs do not end"
        await asyncio.sleep(0.1)


async def _for_each(numbers: range, act: Callable[[int], Any]) -> None:
    remaining = iter(numbers)

    async def run() -> None:
        for number in remaining:
            await act(number)

    await asyncio.gather(*(run() for _ in range(CLIENTS)))


async def _count_events(hosts: SimulatedHosts) -> int:
    ((count,),) = await hosts.fetch("SELECT count(*) FROM session_events")
    return int(count)


async def _usage(hosts: SimulatedHosts) -> Usage:
    await asyncio.sleep(_STATISTICS_SECONDS)
    ((commits, wal, size),) = await hosts.fetch(
        "SELECT xact_commit, pg_current_wal_lsn() - '0/0', pg_database_size(datname) FROM pg_stat_database"
        " WHERE datname = current_database()"
    )
    kinds: list[Sequence[Host]] = [hosts.api_hosts, hosts.worker_hosts, [hosts.primary.host], [hosts.replica.host]]
    seconds = {kind: sum(map(_processor_seconds, each)) for kind, each in zip(_KINDS, kinds, strict=True)}
    return Usage(seconds, int(commits), int(wal), int(size))


def _processor_seconds(host: Host) -> float:
    """Of its processes and of those that have ended."""
    return sum(sum(psutil.Process(pid).cpu_times()[:4]) for pid in host.pids())


def _slow_down_commits(hosts: SimulatedHosts) -> None:
    with psycopg.connect(hosts.primary.url, autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET commit_delay = {SLOW_COMMIT_MS * 1000}")
        connection.execute("ALTER SYSTEM SET commit_siblings = 0")
        connection.execute("SELECT pg_reload_conf()")


def _pgbench(hosts: SimulatedHosts, script: Path, statement: str) -> float:
    script.write_text(f"{statement};\n")
    command = [str(binary("pgbench")), "--no-vacuum", f"--client={_CONTROL_CLIENTS}", f"--time={_CONTROL_SECONDS}"]
    done = subprocess.run(
        [*command, f"--file={script}", hosts.primary.url],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("tps = ")]
    return float(line.split()[2])
