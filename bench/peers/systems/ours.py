"""Quarterdeck itself, as the others are measured: one API process, one worker process, a new database."""

import sys
from collections.abc import Sequence
from json import dumps
from pathlib import Path

import httpx
from psycopg import AsyncConnection

import quarterdeck
from bench.peers.processes import Command
from bench.peers.system import Request, System, new_database
from quarterdeck.core.settings import DatabaseSettings, KeySettings, SignInSettings
from quarterdeck.db.database import connection_options
from quarterdeck.db.migrate import migrate
from quarterdeck.workspaces.service import first_start


class Quarterdeck(System):
    name = "Quarterdeck"
    request = "POST /v1/sessions/{id}/events"
    setting = "qd api and qd worker on PostgreSQL"
    differs = "A turn for a busy session steers the run that is going on; the others start a run for each turn."
    environment = None
    health = "/readyz"

    async def prepare(self) -> None:
        self._url = new_database(self.installation.postgres_url)
        migrate(self._url)
        options = connection_options(DatabaseSettings())
        async with await AsyncConnection.connect(self._url, autocommit=True, options=options) as connection:
            first = await first_start(connection, KeySettings("bench"), SignInSettings())
        assert first is not None, "the database is new"
        self._headers = {"authorization": f"Bearer {first.secret}"}

    def commands(self) -> Sequence[Command]:
        environment = {
            # The source that has just migrated the database, whichever is installed.
            "PYTHONPATH": str(Path(quarterdeck.__file__).parents[1]),
            "QUARTERDECK_DATABASE_URL": self._url,
            "QUARTERDECK_SERVER_DATA_DIR": str(self.installation.folder),
            "QUARTERDECK_MODEL_DEMO_PAUSE_SECONDS": "0",
            # Soon enough to see the recovery. The default is 20.
            "QUARTERDECK_WORKER_LEASE_SECONDS": "6",
        }
        if self.installation.model:
            environment["QUARTERDECK_MODEL_DEFAULT"] = "openai-chat:bench"
            environment["QUARTERDECK_MODEL_OPENAI_BASE_URL"] = f"http://{self.installation.model}/v1"
        program = [sys.executable, "-m", "quarterdeck"]
        return [
            Command("api", [*program, "api", "--port", str(self.port)], environment),
            Command("worker", [*program, "worker"], environment),
        ]

    async def new_sessions(self, count: int) -> list[str]:
        answers = [await self.client.post("/v1/sessions", json={}, headers=self._headers) for _ in range(count)]
        return [str(answer.raise_for_status().json()["id"]) for answer in answers]

    def turn(self, session: str, text: str) -> Request:
        body = dumps({"type": "input", "text": text}).encode()
        return Request(f"/v1/sessions/{session}/events", body, headers=self._headers)

    def said(self, answer: httpx.Response) -> str:
        return str(answer.json()["outcome"])

    async def record(self, session: str) -> str:
        pages, after = [], 0
        while after is not None:
            path = f"/v1/sessions/{session}/events?limit=200&after={after}"
            page = await self.get(path, **self._headers)
            pages.append(page.text)
            after = page.json()["next_cursor"]
        return "\n".join(pages)
