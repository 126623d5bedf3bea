"""The real thing, in pieces that can be broken: PostgreSQL, the line to it, two API processes, three workers, and a
small disk for bundles."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from psycopg import AsyncConnection
from psycopg.conninfo import make_conninfo

from quarterdeck.server.data_directory import SOCKET_NAME
from quarterdeck.workspaces.service import FirstStart, first_start
from tests.fault.postgres import Postgres
from tests.harness import launch
from tests.harness.clock import Clock
from tests.harness.line import Line
from tests.harness.planted import Bug
from tests.uptime.fleet import Process, environment_of
from tests.world import AS_OWNER, START_SECONDS, STOP_SECONDS, free_port, migrate_for_tests

APIS, WORKERS = 2, 3
DISK_BYTES = 64 * 1024 * 1024
# What a deployment would set to be quick about a lost worker, and a model that does not hold anybody up.
LEASE_SECONDS = 4.0
SETTINGS = {
    "WORKER_LEASE_SECONDS": LEASE_SECONDS,
    "WORKER_SWEEP_SECONDS": 0.5,
    "MODEL_DEMO_PAUSE_SECONDS": 0,
    "LOG_LEVEL": "warning",
}


# A commit waits this long with its locks in hand when others are at work too, as on a slow disk: races get wider.
COMMIT_DELAY_MICROSECONDS = 20_000


class Member(Process):
    """A process that can be broken: killed, drained, paused, put into another time."""

    module = "tests.harness.launch"

    def __init__(self, name: str, arguments: list[str], environment: dict[str, str], folder: Path) -> None:
        self.clock = Clock(folder / f"{name}.clock")
        self._ending = asyncio.Lock()
        super().__init__(name, arguments, environment | {launch.CLOCK: str(self.clock.path)}, folder / f"{name}.log")

    async def kill(self) -> None:
        """And start it again."""
        async with self._ending:
            self.signal(signal.SIGKILL)
            await self._start_again()

    async def drain(self) -> None:
        """Ask it to end, as at an upgrade, and start it again."""
        async with self._ending:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
            await self._start_again()

    async def _start_again(self) -> None:
        assert self._process is not None
        try:
            await asyncio.to_thread(self._process.wait, STOP_SECONDS)
        finally:
            self.signal(signal.SIGKILL)
            self._process.wait()
            self.start()


class Api(Member):
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class Fleet:
    def __init__(self, folder: Path, postgres: Postgres, line: Line, bug: str | None, *, has_small_disk: bool) -> None:
        self.folder = folder
        self.postgres = postgres
        self.line = line
        # Past the line, so that what is checked does not depend on what is broken.
        self.database_url = postgres.url
        self.bundles = folder / "disk"
        self.has_small_disk = has_small_disk
        environment = self._environment(bug)
        self.apis = [self._api(f"api-{number}", environment) for number in range(APIS)]
        self.workers = [Member(f"worker-{number}", ["worker"], environment, folder) for number in range(WORKERS)]
        self.workspace_id: UUID
        self.key: str

    def _environment(self, bug: str | None) -> dict[str, str]:
        over_the_line = make_conninfo(self.database_url, host="127.0.0.1", port=self.line.port)
        settings = SETTINGS | {"BUNDLE_STORE_URL": f"file://{self.bundles}"}
        environment = environment_of(over_the_line, self.folder / "data", **settings)
        return environment if bug is None else environment | {launch.BUG: bug}

    def _api(self, name: str, environment: dict[str, str]) -> Api:
        port = free_port()
        api = Api(name, ["api", "--port", str(port)], environment, self.folder)
        api.port = port
        return api

    @property
    def members(self) -> list[Member]:
        return [*self.apis, *self.workers]

    async def start(self, bug: Bug | None) -> None:
        self.postgres.start()
        migrate_for_tests(self.database_url)
        async with await self.connect() as connection:
            await connection.execute(f"ALTER SYSTEM SET commit_delay = {COMMIT_DELAY_MICROSECONDS}")
            await connection.execute("ALTER SYSTEM SET commit_siblings = 1")
            await connection.execute("SELECT pg_reload_conf()")
        if bug is not None:
            await self._plant(bug)
        async with await self.connect() as connection:
            first: FirstStart | None = await first_start(connection, "harness")
        assert first is not None, "the database is new"
        self.workspace_id, self.key = first.workspace_id, first.secret
        for member in self.members:
            member.start()
        await asyncio.gather(*(self.until_up(api) for api in self.apis))

    async def _plant(self, bug: Bug) -> None:
        async with await self.connect() as connection:
            if bug.sql is not None:
                await connection.execute(bug.sql.encode())
            if bug.without is not None:
                definition = "SELECT pg_get_functiondef(%s::regproc)"
                row = await (await connection.execute(definition, (bug.function,))).fetchone()
                assert row is not None
                assert bug.without in row[0], f"{bug.function} does not say this any more"
                await connection.execute(row[0].replace(bug.without, "").encode())

    async def until_up(self, api: Api) -> None:
        deadline = time.monotonic() + START_SECONDS
        async with httpx.AsyncClient(base_url=api.url, timeout=5) as http:
            while True:
                with suppress(httpx.TransportError):
                    if (await http.get("/readyz")).status_code == 200:
                        return
                assert time.monotonic() < deadline, f"{api.name} did not start: {api.log.read_text()[-2000:]}"
                await asyncio.sleep(0.05)

    async def connect(self) -> "AsyncConnection[tuple[Any, ...]]":
        return await AsyncConnection.connect(self.database_url, autocommit=True, options=AS_OWNER, connect_timeout=5)

    async def backends(self) -> list[int]:
        """The connections of the application."""
        async with await self.connect() as connection:
            query = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            return [row[0] for row in await (await connection.execute(query)).fetchall()]

    def stop(self) -> None:
        for member in self.members:
            member.signal(signal.SIGKILL)
            member.stop()
        self.postgres.stop(signal.SIGQUIT)


@asynccontextmanager
async def launched(folder: Path, bug_name: str | None, bug: Bug | None) -> AsyncIterator[Fleet]:
    database, disk = folder / "database", folder / "disk"
    database.mkdir()
    postgres = await asyncio.to_thread(Postgres, database)
    async with AsyncExitStack() as at_the_end:
        line = await Line.laid(str(postgres.cluster.socket_dir / SOCKET_NAME))
        at_the_end.push_async_callback(line.close)
        has_small_disk = _mount(disk)
        if has_small_disk:
            at_the_end.callback(_unmount, disk)
        fleet = Fleet(folder, postgres, line, bug_name, has_small_disk=has_small_disk)
        at_the_end.callback(fleet.stop)
        await fleet.start(bug)
        yield fleet


def _mount(place: Path) -> bool:
    """Whether it is a disk of its own. Only root can make one; without it no disk gets full."""
    place.mkdir()
    if os.geteuid() != 0:
        return False
    size = f"size={DISK_BYTES},mode=700"
    return subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", place], check=False).returncode == 0


def _unmount(place: Path) -> None:
    subprocess.run(["umount", "--lazy", place], check=True)
