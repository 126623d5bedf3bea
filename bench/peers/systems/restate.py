"""Restate: durable calls of handlers. A session is a virtual object, a turn is a call of it that nobody waits for."""

from collections.abc import Sequence
from json import dumps
from uuid import uuid4

import httpx

from bench.peers.processes import Command, free_port
from bench.peers.system import APPS, Environment, Request, System


class Restate(System):
    name = "Restate"
    request = "POST /Session/{key}/turn/send"
    setting = "one node as it comes: its log on the disk, synced before it answers"
    differs = "No agents, no callers, no conversations: those are the service's own, here twenty lines of Python."
    environment = Environment("restate", "@restatedev/restate-server")
    health = "/restate/health"

    async def prepare(self) -> None:
        self._admin_port, self._node_port, self._service_port = free_port(), free_port(), free_port()

    def commands(self) -> Sequence[Command]:
        service = {"PYTHONPATH": str(APPS)}
        if self.installation.model:
            service["BENCH_MODEL"] = self.installation.model
        server = {
            "RESTATE_BASE_DIR": str(self.installation.folder / "restate-data"),
            "RESTATE_LISTEN_MODE": "tcp",
            "RESTATE_BIND_IP": "127.0.0.1",
            "RESTATE_BIND_PORT": str(self._node_port),
            "RESTATE_ADMIN__BIND_PORT": str(self._admin_port),
            "RESTATE_INGRESS__BIND_PORT": str(self.port),
            "RESTATE_DISABLE_TELEMETRY": "true",
        }
        bind = f"127.0.0.1:{self._service_port}"
        installed = self.installation.installed
        return [
            Command("service", [installed / "bin" / "hypercorn", "restate_service:app", "--bind", bind], service),
            Command("restate", [installed / "node_modules" / ".bin" / "restate-server", "--no-logo"], server),
        ]

    async def start(self) -> None:
        """Tells the server where the service is. After a restart it knows already, and says so."""
        await super().start()
        async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(retries=5), timeout=30) as admin:
            body = {"uri": f"http://127.0.0.1:{self._service_port}"}
            answer = await admin.post(f"http://127.0.0.1:{self._admin_port}/deployments", json=body)
            answer.raise_for_status()

    async def new_sessions(self, count: int) -> list[str]:
        """Names: an object exists as soon as it is called."""
        return [uuid4().hex for _ in range(count)]

    def turn(self, session: str, text: str) -> Request:
        return Request(f"/Session/{session}/turn/send", dumps(text).encode())

    def said(self, answer: httpx.Response) -> str:
        return str(answer.json()["status"])

    async def record(self, session: str) -> str:
        answer = await self.client.post(f"/Session/{session}/turns")
        answer.raise_for_status()
        return answer.text
