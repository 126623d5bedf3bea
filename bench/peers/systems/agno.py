"""Agno AgentOS: runs of agents in the background, accepted as rows of a queue in PostgreSQL."""

from collections.abc import Sequence
from urllib.parse import urlencode
from uuid import uuid4

import httpx

from bench.peers.processes import Command
from bench.peers.system import APPS, Environment, Request, System, new_database


class Agno(System):
    name = "Agno AgentOS"
    request = "POST /agents/{id}/runs, background=true"
    setting = "QueueConfig(durable=True, max_attempts=3) on PostgreSQL"
    differs = "A turn becomes a run of its own, also in a busy session. API and worker are one process."
    environment = Environment("agno", "agno")
    health = "/health"

    async def prepare(self) -> None:
        self._url = new_database(self.installation.postgres_url, "postgresql+psycopg")

    def commands(self) -> Sequence[Command]:
        environment = {"PYTHONPATH": str(APPS), "BENCH_DATABASE_URL": self._url}
        if self.installation.model:
            environment["BENCH_MODEL"] = self.installation.model
        program = self.installation.installed / "bin" / "python"
        return [Command("agentos", [program, "-m", "uvicorn", "agno_app:app", "--port", str(self.port)], environment)]

    async def new_sessions(self, count: int) -> list[str]:
        """Names: a session begins to exist with its first turn."""
        return [uuid4().hex for _ in range(count)]

    def turn(self, session: str, text: str) -> Request:
        fields = {"message": text, "session_id": session, "background": "true", "stream": "false"}
        return Request("/agents/bench/runs", urlencode(fields).encode(), "application/x-www-form-urlencoded")

    def said(self, answer: httpx.Response) -> str:
        return str(answer.json()["status"])

    async def record(self, session: str) -> str:
        return (await self.get(f"/sessions/{session}/runs?type=agent")).text
