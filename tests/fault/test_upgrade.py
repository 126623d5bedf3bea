"""A rolling upgrade with real processes: those of this state run beside those of a next release on its schema, share
sessions, receipts, archives and keys, and nothing fails."""

import asyncio
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from uuid import uuid4

import httpx
import psycopg
import pytest

from quarterdeck.db.migrate import MigrationError, migrate
from tests.next_release import NAME, importing, next_release, qd_of
from tests.workers import check_log, ended, log_of, working
from tests.world import PATIENT, World, bundle, error_of, serving

pytestmark = pytest.mark.long


class Upgrade:
    """One installation. Its API processes have the same key, database and blob store."""

    def __init__(self, stack: AsyncExitStack, url: str, folder: Path, key: str) -> None:
        self._stack = stack
        self._url = url
        self._folder = folder
        self._key = key
        self._settings: dict[str, object] = {"BLOB_STORE_URL": f"file://{folder / 'blobs'}"}
        self._numbers = count(1)
        self.skill_id = ""
        self.sessions: list[str] = []
        self.runs: list[str] = []

    async def start_api(self) -> World:
        server = self._stack.enter_context(serving(self._url, self._own_folder(), **self._settings, **PATIENT))
        world = World(
            self._url, await self._stack.enter_async_context(httpx.AsyncClient(base_url=server.url, timeout=60))
        )
        world.key = self._key
        return world

    def start_worker(self) -> AsyncExitStack:
        stack = AsyncExitStack()
        stack.enter_context(working(self._url, self._own_folder(), **self._settings))
        self._stack.push_async_exit(stack)
        return stack

    def _own_folder(self) -> Path:
        folder = self._folder / str(next(self._numbers))
        folder.mkdir()
        return folder

    async def use(self, first: World, second: World) -> None:
        """Every operation starts in one API process and goes on in the other."""
        session_id = await first.new_session()
        self.sessions.append(session_id)
        key = uuid4().hex
        answer = await first.submit(session_id, "demo: steps 2", idempotency_key=key)
        assert answer.json()["outcome"] == "new_run", answer.text
        self.runs.append(answer.json()["run_id"])
        repeated = await second.submit(session_id, "demo: steps 2", idempotency_key=key)
        assert (repeated.content, repeated.headers["idempotency-replayed"]) == (answer.content, "true")
        assert error_of(await second.submit(session_id, "another", idempotency_key=key)) == (409, "conflict")
        token = await second.new_token(session_id)
        added = await first.submit(session_id, "and then?", key=token)
        assert added.status_code == 200, added.text
        self.runs.append(added.json()["run_id"])

        archive = bundle(notes=uuid4().hex)
        pushed = await first.push(self.skill_id, archive)
        assert pushed.status_code == 201, pushed.text
        stored = f"/v1/skills/{self.skill_id}/versions/{pushed.json()['version']}"
        assert (await second.get(f"{stored}/bundle")).content == archive

        made = await first.post("/v1/api-keys", {"label": "short", "permissions": ["workspace.read"]})
        assert made.status_code == 201, made.text
        assert (await second.get("/v1/whoami", key=made.json()["secret"])).status_code == 200
        assert (await second.post(f"/v1/api-keys/{made.json()['id']}/revoke", {})).status_code == 200
        assert (await first.get("/v1/whoami", key=made.json()["secret"])).status_code == 401
        for path in (
            "/v1/sessions",
            "/v1/skills",
            "/v1/audit-events",
            "/v1/workspace",
            f"/v1/sessions/{session_id}/events",
        ):
            for world in (first, second):
                assert (await world.get(path)).status_code == 200, path

    async def finish(self, *worlds: World) -> None:
        """Every API process says the same of runs and logs."""
        for run_id in dict.fromkeys(self.runs):
            for world in worlds:
                run = await ended(world, run_id)
                assert run["state"] == "succeeded", run
        for session_id in self.sessions:
            logs = [await log_of(world, session_id) for world in worlds]
            check_log(logs[0])
            assert [[entry["type"] for entry in log] for log in logs[1:]] == [[e["type"] for e in logs[0]]] * (
                len(logs) - 1
            )


async def test_both_releases_work_on_the_migrated_schema(database_url: str, tmp_path: Path) -> None:
    later = next_release(tmp_path / "next")
    async with AsyncExitStack() as stack:
        made = await World.create(database_url, await stack.enter_async_context(httpx.AsyncClient()))
        upgrade = Upgrade(stack, database_url, tmp_path, made.key)
        old = await upgrade.start_api()
        upgrade.start_worker()
        upgrade.skill_id = await old.new_skill()
        await upgrade.use(old, old)

        migrated, _ = await asyncio.gather(
            asyncio.to_thread(qd_of, later, "migrate", DATABASE_URL=database_url), upgrade.use(old, old)
        )
        assert NAME in migrated
        await upgrade.use(old, old)
        await upgrade.finish(old)

        with importing(later):
            new = await upgrade.start_api()
        await upgrade.use(old, new)
        await upgrade.use(new, old)
        with importing(later):
            upgrade.start_worker()
        await upgrade.use(old, new)
        await upgrade.use(new, old)
        await upgrade.finish(old, new)

        # Back again: processes of this state start on the newer schema, and only `qd migrate` refuses it.
        again = await upgrade.start_api()
        await upgrade.use(again, new)
        await upgrade.finish(again, new)
        with pytest.raises(MigrationError, match=f"newer release .{NAME}."):
            migrate(database_url)
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT DISTINCT later FROM app.sessions").fetchall() == [("x",)]
