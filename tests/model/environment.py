"""What the state machine works with: an API process, one worker, a model provider that the test controls, and the
database, to make time pass and to read what is stored."""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
from psycopg import AsyncConnection

from quarterdeck.api_keys.model import CreateApiKeyBody, CreatedApiKeyBody
from quarterdeck.blobs.blob_store import open_blob_store
from quarterdeck.cli.database import with_server
from quarterdeck.core.actors import Permission
from quarterdeck.core.ids import created_at, first_id_at
from quarterdeck.core.settings import BlobSettings, DatabaseSettings, Settings
from quarterdeck.db.database import Database, connection_options
from quarterdeck.retention import delete_expired
from quarterdeck.workspaces import service as workspaces
from tests.fault.stand_in import asking
from tests.model.paused_provider import ANSWER, PausedProvider
from tests.model.records import PERMISSIONS, Key
from tests.workers import working
from tests.world import PATIENT, serving

# Few, so that runs often wait.
ACTIVE_RUNS = 2
WARM_UP_SECONDS = 180.0
# A request to the provider waits until a rule answers it, maybe at the end of a long sequence.
WORKER = {"RUN_ACTIVE_PER_WORKSPACE": ACTIVE_RUNS, "MODEL_STALL_SECONDS": 600}


class Environment:
    def __init__(self, database_url: str, data_dir: Path, http: httpx.Client, model: PausedProvider) -> None:
        self.http = http
        self._data_dir = data_dir
        self.model = model
        self.database = psycopg.connect(database_url, autocommit=True, options="-c search_path=app")
        database = DatabaseSettings(url=database_url, pool_connections=1, submit_connections=1)
        self._settings = with_server(Settings(database=database), data_dir=str(data_dir))

    def new_workspace(self) -> Key:
        """Returns its first key."""
        workspace_id, made = asyncio.run(self._create_workspace())
        return Key(
            str(made.id), str(workspace_id), made.label, frozenset(PERMISSIONS), str(made.id), None, str(made.secret)
        )

    async def _create_workspace(self) -> tuple[UUID, CreatedApiKeyBody]:
        body = CreateApiKeyBody("root", list(Permission), None)
        options, url = connection_options(self._settings.database), str(self._settings.database.url)
        async with await AsyncConnection.connect(url, autocommit=True, options=options) as connection:
            workspace_id = await workspaces.create_workspace(connection, "Model", f"{uuid4().hex}@example.com")
            return workspace_id, await workspaces.create_key(connection, "test", workspace_id, body, None)

    def warm_up(self) -> None:
        """One complete run: with the first one the worker loads the provider's library, which can take long."""
        headers = {"Authorization": f"Bearer {self.new_workspace().secret}"}
        session = self.http.post("/v1/sessions", json={"model": "openai-chat:warm-up"}, headers=headers).json()
        path = f"/v1/sessions/{session['id']}/events"
        assert self.http.post(path, json={"type": "input", "text": "Hello."}, headers=headers).status_code == 200
        deadline = time.monotonic() + WARM_UP_SECONDS
        while "warm-up" not in self.model.questions():
            assert time.monotonic() < deadline, "the worker does not ask its model"
            self.model.wait_for_change(0.1)
        self.model.answer("warm-up", ANSWER)

    def delete_expired(self) -> None:
        asyncio.run(self._delete_expired())

    async def _delete_expired(self) -> None:
        database = Database(str(self._settings.database.url), self._settings.database)
        blobs = open_blob_store(BlobSettings(), self._data_dir)
        await database.open()
        try:
            await delete_expired(database, blobs, self._settings)
        finally:
            await database.close()

    def age(self, workspace_ids: list[str], hours: int) -> None:
        """As if so much time had passed: everything that anybody compares with the clock is moved back, namely when
        keys, tokens and open actions end, when receipts and archives were written, and the ids of audit events, which
        hold their time. Ids of other records stay: their time is only responses. So do runs, which a worker times by
        itself."""
        past = timedelta(hours=hours)
        ids = [UUID(one) for one in workspace_ids]
        with self.database.transaction():
            for statement in (
                "UPDATE api_keys SET expires_at = expires_at - %s",
                "UPDATE session_tokens SET expires_at = expires_at - %s",
                "UPDATE actions SET expires_at = expires_at - %s WHERE state = 'open'",
                "UPDATE receipts SET created_at = created_at - %s",
                "UPDATE blobs SET touched_at = touched_at - %s",
            ):
                self.database.execute(statement, (past,))
            rows = self.fetch("SELECT id FROM audit_events WHERE workspace_id = ANY (%s) ORDER BY id", ids)
            aged = [(_aged(one, past), one) for (one,) in rows]
            self.database.cursor().executemany("UPDATE audit_events SET id = %s WHERE id = %s", aged)

    def has_overdue_actions(self) -> bool:
        """Workers close them."""
        return bool(self.fetch("SELECT FROM actions WHERE state = 'open' AND expires_at < now()"))

    def fetch(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self.database.execute(query.encode(), values).fetchall()


def _aged(identifier: UUID, past: timedelta) -> UUID:
    low_bits = identifier.int & (2**80 - 1)
    return UUID(int=first_id_at(created_at(identifier) - past).int | low_bits)


@contextmanager
def running_environment(database_url: str, data_dir: Path) -> Iterator[Environment]:
    with (
        socket.create_server(("127.0.0.1", 0)) as door,
        PausedProvider.behind(door) as model,
        serving(database_url, data_dir, **PATIENT) as server,
        working(database_url, data_dir, **asking(door), **WORKER),
        httpx.Client(base_url=server.url, timeout=60) as http,
    ):
        environment = Environment(database_url, data_dir, http, model)
        try:
            environment.warm_up()
            yield environment
        finally:
            environment.database.close()
