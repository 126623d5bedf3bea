"""A deployment on nine hosts: two APIs, four workers, a database with its replica, and an object store."""

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from uuid import UUID

import httpx
from msgspec import Struct
from obstore.exceptions import BaseError, NotFoundError
from obstore.store import S3Store
from psycopg.conninfo import make_conninfo

from quarterdeck.core.settings import KeySettings, SignInSettings
from quarterdeck.db.pool import KEEPALIVE
from quarterdeck.workspaces.service import FirstStart, first_start
from tests.fleet.deployment import Deployment
from tests.fleet.fleet import EXPIRING, EXPIRY_SECONDS
from tests.fleet.process import ApiProcess, Process, environment_for
from tests.object_store import BUCKET, CREDENTIALS, STORE_URL, server_command
from tests.simulation.database import START_SECONDS, DatabaseServer, Replication, url_of_both
from tests.simulation.network import Host, build_network, remove_network
from tests.world import migrate_for_tests

_STORE_PORT = 9000
_FILER_PORT = 8888


class HostOptions(Struct, frozen=True, kw_only=True):
    replication: Replication
    apis: int = 2
    workers: int = 4
    # Settings without their prefix.
    settings: dict[str, object] = {}


class SimulatedHosts(Deployment):
    def __init__(self, folder: Path, options: HostOptions) -> None:
        self._folder = folder
        self._options = options
        self.api_hosts = [Host(f"api-{number}", 10 + number) for number in range(1, options.apis + 1)]
        self.worker_hosts = [Host(f"worker-{number}", 20 + number) for number in range(1, options.workers + 1)]
        self.primary = DatabaseServer(Host("db-1", 31), folder / "db-1")
        self.replica = DatabaseServer(Host("db-2", 32), folder / "db-2")
        self._store_host = Host("store-1", 41)
        self._store_url = f"http://{self._store_host.address}:{_STORE_PORT}"
        self._store = S3Store.from_url(
            STORE_URL,
            endpoint=self._store_url,
            access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            region=CREDENTIALS["AWS_REGION"],
            client_options={"allow_http": True},
        )
        self._store_process: subprocess.Popen[bytes] | None = None
        super().__init__("")

    @property
    def hosts(self) -> list[Host]:
        return [*self.api_hosts, *self.worker_hosts, self.primary.host, self.replica.host, self._store_host]

    def stored_content(self, sha256: str, generation: UUID) -> bytes | None:
        try:
            return bytes(self._store.get(f"{sha256[:2]}/{sha256}.{generation.hex}").bytes())
        except NotFoundError:
            return None

    async def start(self) -> None:
        self.primary.create()
        self.primary.start()
        # Checks notice a lost database in seconds, as the processes do.
        self.database_url = make_conninfo(url_of_both(self.primary, self.replica), **KEEPALIVE)
        migrate_for_tests(self.primary.url)
        self.replica.copy_from(self.primary)
        self.replica.start()
        self.primary.replicate(self._options.replication)
        self._start_store()
        async with self.connect() as connection:
            first: FirstStart | None = await first_start(connection, KeySettings("simulation"), SignInSettings())
        assert first is not None, "the database is new"
        self.workspace_id, self.key = first.workspace_id, first.secret
        for host in self.api_hosts:
            folder, environment = self._prepare(host)
            self.apis.append(ApiProcess(host.name, "api", environment, folder, host.prefix(), host.address))
        for host in self.worker_hosts:
            folder, environment = self._prepare(host)
            self.workers.append(Process(host.name, ["worker"], environment, folder, host.prefix()))
        for process in self.processes:
            process.start()
        await asyncio.gather(*(api.wait_until_ready() for api in self.apis))
        await self._wait_for_workers()

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
        for server in (self.primary, self.replica):
            server.lose()
        if self._store_process is not None:
            self._store_process.kill()
            self._store_process.wait()

    def forget_worker(self, host: Host) -> None:
        """After its host was lost."""
        lost = next(worker for worker in self.workers if worker.name == host.name)
        lost.kill()
        self.workers.remove(lost)

    async def _wait_for_workers(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while len(await self.fetch("SELECT FROM workers")) < len(self.workers):
            logs = "".join(worker.log.read_text()[-500:] for worker in self.workers)
            assert time.monotonic() < deadline, f"not every worker has started: {logs}"
            await asyncio.sleep(0.1)

    def _prepare(self, host: Host) -> tuple[Path, dict[str, str]]:
        """The disk of the host, which it shares with no other, and the environment of its process."""
        folder = self._folder / host.name
        folder.mkdir(mode=0o711)
        settings: dict[str, object] = {"MODEL_DEMO_PAUSE_SECONDS": 0, "LOG_LEVEL": "warning"}
        settings |= {"BLOB_STORE_URL": STORE_URL, "SANDBOX_FOLDER": folder / "sandboxes"}
        settings |= {f"ACTION_EXPIRY_{kind.upper()}_SECONDS": EXPIRY_SECONDS for kind in EXPIRING}
        url = url_of_both(self.primary, self.replica)
        environment = environment_for(url, folder / "data", **(settings | self._options.settings))
        return folder, environment | CREDENTIALS | {"AWS_ENDPOINT_URL": self._store_url}

    def _start_store(self) -> None:
        address, folder = self._store_host.address, self._folder / "store"
        folder.mkdir()
        command = server_command(folder, address, {"s3.port": _STORE_PORT, "filer.port": _FILER_PORT})
        with (self._folder / "store.log").open("wb") as log:
            self._store_process = subprocess.Popen(
                [*self._store_host.prefix(), *command], stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            # Until an object can be stored: the parts of the server find each other after they have started.
            with suppress(httpx.HTTPError, BaseError, FileNotFoundError):
                httpx.post(f"http://{address}:{_FILER_PORT}/buckets/{BUCKET}/", timeout=10)
                self._store.put("first", b"x")
                return
            assert time.monotonic() < deadline, "the object store did not start"
            time.sleep(0.1)


@asynccontextmanager
async def running_hosts(folder: Path, options: HostOptions) -> AsyncIterator[SimulatedHosts]:
    deployment = SimulatedHosts(folder, options)
    build_network(deployment.hosts)
    try:
        await deployment.start()
        yield deployment
    finally:
        deployment.stop()
        remove_network(deployment.hosts)
