"""Real processes on a real PostgreSQL: several API and worker processes, a proxy before the database, and optionally a
small disk for blobs. The fault run, the availability measurement and the soak all use this fleet."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from uuid import UUID

from msgspec import Struct
from psycopg.conninfo import make_conninfo

from quarterdeck.core.settings import KeySettings, SignInSettings
from quarterdeck.server.data_directory import SOCKET_NAME
from quarterdeck.workspaces.service import FirstStart, first_start
from tests.fault.postgres import Postgres
from tests.fleet.deployment import Deployment
from tests.fleet.planted_bugs import BUGS, Bug, hold_results
from tests.fleet.process import BUG_VARIABLE, ApiProcess, Process, environment_for
from tests.fleet.proxy import Proxy
from tests.world import LOGIN, migrate_for_tests

DISK_BYTES = 64 * 1024 * 1024
# A short lease, so that a lost worker is replaced soon.
LEASE_SECONDS = 4.0
SHORT_LEASE = {"WORKER_LEASE_SECONDS": LEASE_SECONDS, "WORKER_SWEEP_SECONDS": 0.5}
# Kinds of actions that expire soon. The others need an answer.
EXPIRING = ("approval", "tool_result")
EXPIRY_SECONDS = 4.0
# PostgreSQL delays a commit by this much, with its locks held, while other transactions are open. It widens races.
COMMIT_DELAY_MICROSECONDS = 20_000

# The result of a call with effects is held before it is stored, so that workers are lost between effect and result.
HOLD_RESULT_SECONDS = 0.2


class FleetOptions(Struct, frozen=True, kw_only=True):
    apis: int = 2
    workers: int = 3
    # One `qd serve` with all processes as its children, instead of separate processes.
    as_qd_serve: bool = False
    # Settings without their prefix.
    settings: dict[str, object] = {}
    # A name in `planted_bugs.BUGS`.
    bug: str | None = None
    delay_commits: bool = False
    # Needs root. Without it no disk can be filled.
    with_small_disk: bool = False


class Fleet(Deployment):
    def __init__(
        self, folder: Path, postgres: Postgres, proxy: Proxy, options: FleetOptions, *, has_small_disk: bool
    ) -> None:
        # Not through the proxy: checks must work while the proxy is broken.
        super().__init__(postgres.url)
        self.postgres = postgres
        self.proxy = proxy
        self.options = options
        self.blobs = folder / "disk"
        self.has_small_disk = has_small_disk
        environment = self._environment(folder)
        if options.as_qd_serve:
            self.apis, self.workers = [ApiProcess("serve", "serve", environment, folder)], []
        else:
            self.apis = [ApiProcess(f"api-{n}", "api", environment, folder) for n in range(1, options.apis + 1)]
            names = [f"worker-{at}" for at in range(1, options.workers + 1)]
            self.workers = [Process(name, ["worker"], environment, folder) for name in names]

    def _environment(self, folder: Path) -> dict[str, str]:
        proxied_url = make_conninfo(self.database_url, host="127.0.0.1", port=self.proxy.port)
        settings: dict[str, object] = {"MODEL_DEMO_PAUSE_SECONDS": 0, "LOG_LEVEL": "warning"}
        settings |= {"BLOB_STORE_URL": f"file://{self.blobs}", "SANDBOX_FOLDER": folder / "sandboxes"}
        settings |= {f"ACTION_EXPIRY_{kind.upper()}_SECONDS": EXPIRY_SECONDS for kind in EXPIRING}
        if self.options.as_qd_serve:
            settings |= {"SERVER_PROCESSES": self.options.apis, "WORKER_PROCESSES": self.options.workers}
        environment = environment_for(proxied_url, folder / "data", **(settings | self.options.settings))
        return environment if self.options.bug is None else environment | {BUG_VARIABLE: self.options.bug}

    def stored_content(self, sha256: str, generation: UUID) -> bytes | None:
        path = self.blobs / sha256[:2] / f"{sha256}.{generation.hex}"
        return path.read_bytes() if path.exists() else None

    async def start(self) -> None:
        self.postgres.start()
        migrate_for_tests(self.database_url)
        if self.options.delay_commits:
            await self._delay_commits()
        if self.options.bug is not None:
            await self._plant(BUGS[self.options.bug])
        async with self.connect() as connection:
            first: FirstStart | None = await first_start(connection, KeySettings("fleet"), SignInSettings())
        assert first is not None, "the database is new"
        self.workspace_id, self.key = first.workspace_id, first.secret
        for process in self.processes:
            process.start()
        await self.wait_until_ready()

    async def wait_until_ready(self) -> None:
        await asyncio.gather(*(api.wait_until_ready() for api in self.apis))

    async def _delay_commits(self) -> None:
        async with self.connect() as connection:
            await connection.execute(f"ALTER SYSTEM SET commit_delay = {COMMIT_DELAY_MICROSECONDS}")
            await connection.execute("ALTER SYSTEM SET commit_siblings = 1")
            await connection.execute("SELECT pg_reload_conf()")
            await connection.execute(hold_results(HOLD_RESULT_SECONDS).encode())

    async def _plant(self, bug: Bug) -> None:
        async with self.connect() as connection:
            if bug.sql is not None:
                await connection.execute(bug.sql.encode())
            for change in bug.changes:
                definition = "SELECT pg_get_functiondef(%s::regproc)"
                row = await (await connection.execute(definition, (change.function,))).fetchone()
                assert row is not None
                assert change.text in row[0], f"{change.function} no longer contains {change.text!r}"
                await connection.execute(row[0].replace(change.text, change.replacement).encode())

    async def backends(self) -> list[int]:
        """Process ids of PostgreSQL's connections to the API and worker processes. Those of the test have another
        user."""
        return [pid for (pid,) in await self.fetch("SELECT pid FROM pg_stat_activity WHERE usename = %s", LOGIN)]

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
        self.postgres.stop(signal.SIGQUIT)


@asynccontextmanager
async def running_fleet(folder: Path, options: FleetOptions) -> AsyncIterator[Fleet]:
    # The user of the sandbox must be able to enter the folders in it.
    folder.chmod(0o711)
    database, disk = folder / "database", folder / "disk"
    database.mkdir()
    disk.mkdir()
    postgres = await asyncio.to_thread(Postgres, database)
    async with AsyncExitStack() as cleanup:
        proxy = await Proxy.started(str(postgres.cluster.socket_dir / SOCKET_NAME))
        cleanup.push_async_callback(proxy.close)
        has_small_disk = options.with_small_disk and _mount(disk)
        if has_small_disk:
            cleanup.callback(_unmount, disk)
        fleet = Fleet(folder, postgres, proxy, options, has_small_disk=has_small_disk)
        cleanup.callback(fleet.stop)
        await fleet.start()
        yield fleet


def _mount(path: Path) -> bool:
    """Mount a small disk there. False without root."""
    if os.geteuid() != 0:
        return False
    size = f"size={DISK_BYTES},mode=700"
    return subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", path], check=False).returncode == 0


def _unmount(path: Path) -> None:
    subprocess.run(["umount", "--lazy", path], check=True)
