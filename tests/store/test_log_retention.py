"""Retention of sessions: which runs, events, actions and files are deleted, and which must stay."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pytest
from msgspec import Struct
from psycopg import AsyncConnection

from quarterdeck.blobs.blob_store import open_blob_store
from quarterdeck.core.ids import first_id_at, new_id
from quarterdeck.core.settings import BlobSettings, DatabaseSettings, ReceiptSettings, RetentionSettings, Settings
from quarterdeck.db.database import Database
from quarterdeck.retention import Deleted, delete_expired
from quarterdeck.sessions import store as sessions
from quarterdeck.workspaces import service as workspaces
from quarterdeck.workspaces.model import SetRetention
from tests.world import AS_OWNER, app_url

EVENTS = ("input.accepted", "input.consumed", "message", "run.succeeded")


def ago(days: float) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


def id_of(days: float) -> UUID:
    """An id of a record that was created so many days ago."""
    return UUID(int=first_id_at(ago(days)).int | (new_id().int & (2**64 - 1)))


class Archive(Struct, frozen=True):
    """Two workspaces, and a way to put old data into them."""

    owner: "AsyncConnection[tuple[Any, ...]]"
    database: Database
    folder: Path
    alpha: UUID
    bravo: UUID

    async def sweep(self, **settings: Any) -> Deleted:
        return await delete_expired(self.database, open_blob_store(BlobSettings(), self.folder), Settings(**settings))

    async def keep(self, workspace_id: UUID, **days: int) -> None:
        await workspaces.configure_workspace(self.owner, workspace_id, retention=SetRetention(**days))

    async def run_sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        cursor = await self.owner.execute(statement.encode(), values)
        return await cursor.fetchall() if cursor.description else []

    async def add_session(self, workspace_id: UUID, days: float, forked_from: UUID | None = None) -> UUID:
        session_id = id_of(days)
        await self.run_sql(
            "INSERT INTO sessions (id, workspace_id, created_by, forked_from_session_id)"
            " SELECT %s, id, owner_id, %s FROM workspaces WHERE id = %s",
            *(session_id, forked_from, workspace_id),
        )
        return session_id

    async def add_events(self, session_id: UUID, run_id: UUID, days: float, workspace_id: UUID | None) -> list[int]:
        """`workspace_id`: None for those that a fork copies."""
        event_ids: list[int] = []
        for type_ in EVENTS:
            is_accepted = type_ == "input.accepted"
            rows = await self.run_sql(
                "INSERT INTO session_events (session_id, run_id, workspace_id, type, created_at, data, input_event_id)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s) RETURNING id",
                *(session_id, run_id, workspace_id if is_accepted else None, type_, ago(days)),
                msgspec.json.encode({"text": "hello", "input_id": str(run_id)}).decode(),
                *(event_ids[:1] if type_ == "input.consumed" else [None]),
            )
            event_ids.append(rows[0][0])
        return event_ids

    async def add_run(self, session_id: UUID, days: float, state: str = "succeeded", first_input: int = 0) -> UUID:
        """A run that ended so many days ago, or still waits, with its events."""
        ((workspace_id,),) = await self.run_sql("SELECT workspace_id FROM sessions WHERE id = %s", session_id)
        run_id = id_of(days)
        event_ids = await self.add_events(session_id, run_id, days, workspace_id)
        await self.run_sql(
            "INSERT INTO runs (id, session_id, workspace_id, state, last_input, consumed_through, first_input,"
            " takes_over, finished_at, waiting_since, input_tokens, output_tokens, cost_usd)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, '{}', %s, %s, 100, 10, 0.5)",
            *(run_id, session_id, workspace_id, state, event_ids[0], event_ids[0], first_input or event_ids[0]),
            *((None, ago(days)) if state == "waiting" else (ago(days), None)),
        )
        return run_id

    async def add_action(self, session_id: UUID, run_id: UUID, days: float, resolution: str) -> None:
        await self.run_sql(
            "INSERT INTO actions (id, workspace_id, session_id, run_id, kind, state, reason, expires_at, resolved_at,"
            " resolution) SELECT %s, workspace_id, id, %s, 'approval', 'resolved', 'x', now(), %s, %s"
            " FROM sessions WHERE id = %s",
            *(id_of(days), run_id, ago(days), resolution, session_id),
        )

    async def left(self, table: str, session_id: UUID) -> list[UUID]:
        """The runs of its rows, each once."""
        rows = await self.run_sql(f"SELECT DISTINCT run_id FROM {table} WHERE session_id = %s ORDER BY 1", session_id)
        return [run_id for (run_id,) in rows]

    async def runs_of(self, session_id: UUID) -> list[UUID]:
        return [
            run_id
            for (run_id,) in await self.run_sql("SELECT id FROM runs WHERE session_id = %s ORDER BY 1", session_id)
        ]


@pytest.fixture
async def archive(database_url: str, tmp_path: Path) -> AsyncIterator[Archive]:
    database = Database(app_url(database_url), DatabaseSettings())
    await database.open()
    async with await AsyncConnection.connect(database_url, autocommit=True, options=AS_OWNER) as owner:
        ids = [await workspaces.create_workspace(owner, name, f"{name}@example.com") for name in ("alpha", "bravo")]
        yield Archive(owner, database, tmp_path, *ids)
    await database.close()


async def test_events_go_before_the_record_of_their_run(archive: Archive) -> None:
    found: dict[UUID, tuple[UUID, list[UUID]]] = {}
    for workspace_id in (archive.alpha, archive.bravo):
        session_id = await archive.add_session(workspace_id, 100)
        runs = [await archive.add_run(session_id, days) for days in (100, 40, 29)]
        for run_id, days in zip(runs, (100, 40, 29), strict=True):
            await archive.add_action(session_id, run_id, days, '{"decision": "approve"}')
        await archive.add_action(session_id, runs[0], 100, '{"decision": "approve", "remember": "session"}')
        found[workspace_id] = session_id, runs
    await archive.keep(archive.alpha, run_days=90, event_days=30)
    session_id, runs = found[archive.alpha]

    async def used() -> object:
        session = await sessions.get(archive.owner, archive.alpha, session_id, "demo")
        assert session is not None
        return session.usage, await archive.run_sql("SELECT * FROM used_in_scope(%s, 'session')", runs[2])

    before = await used()
    assert await archive.sweep() == Deleted(events=8, runs=1)
    assert await archive.runs_of(session_id) == runs[1:]
    assert await archive.left("session_events", session_id) == runs[2:]
    assert await archive.left("actions", session_id) == [runs[0], runs[2]], "an approval may still apply"
    words = await archive.run_sql("SELECT count(*) FROM conversation_words WHERE session_id = %s", session_id)
    assert words == [(2,)], "of an input and a message"
    assert await used() == before, "limits of the session count deleted runs"
    other_session, other_runs = found[archive.bravo]
    assert await archive.runs_of(other_session) == other_runs
    assert await archive.left("session_events", other_session) == other_runs
    assert await archive.sweep() == Deleted()
    # The settings of the server are for workspaces without a retention of their own.
    assert await archive.sweep(retention=RetentionSettings(run_days=35)) == Deleted(events=8, runs=2)
    assert await archive.runs_of(session_id) == runs[1:]
    assert await archive.runs_of(other_session) == other_runs[2:]


async def test_what_a_kept_run_needs_stays(archive: Archive) -> None:
    await archive.keep(archive.alpha, run_days=30)
    session_id = await archive.add_session(archive.alpha, 100)
    first = await archive.add_run(session_id, 90)
    failed = await archive.add_run(session_id, 80, "failed")
    # It goes on with an input of the run that failed.
    ((first_input,),) = await archive.run_sql(
        "SELECT id FROM session_events WHERE run_id = %s AND type = 'input.accepted'", failed
    )
    waiting = await archive.add_run(session_id, 70, "waiting", first_input)
    for run_id, days in ((first, 90), (failed, 80)):
        await archive.add_action(session_id, run_id, days, '{"decision": "approve"}')
    assert await archive.sweep() == Deleted(events=4, runs=1)
    assert await archive.left("actions", session_id) == [failed], "an action stays with the events of its run"
    assert await archive.left("session_events", session_id) == [failed, waiting]
    assert await archive.runs_of(session_id) == [failed, waiting], "a run with events stays"
    await archive.run_sql("UPDATE runs SET state = 'cancelled', waiting_since = NULL, finished_at = now()")
    assert await archive.sweep() == Deleted()
    await archive.run_sql("UPDATE runs SET finished_at = now() - interval '31 days'")
    assert await archive.sweep() == Deleted(events=8, runs=2)
    assert first not in await archive.runs_of(session_id)
    assert await archive.left("actions", session_id) == []


async def test_a_session_in_use_is_left_for_the_next_time(archive: Archive, database_url: str) -> None:
    await archive.keep(archive.alpha, event_days=30)
    session_id = await archive.add_session(archive.alpha, 100)
    await archive.add_run(session_id, 90)
    for statement in (
        "SELECT pg_advisory_xact_lock(session_lock(%s))",
        # As a fork does, which reads the log without the lock.
        "SELECT FROM sessions WHERE id = %s FOR KEY SHARE",
    ):
        async with await psycopg.AsyncConnection.connect(database_url, options=AS_OWNER) as using:
            await using.execute(statement, (session_id,))
            assert await archive.sweep() == Deleted()
    assert await archive.sweep() == Deleted(events=4)


async def test_forks_expire_by_their_own_age(archive: Archive) -> None:
    await archive.keep(archive.alpha, event_days=30)
    origin = new_id()
    old = await archive.add_session(archive.alpha, 31, forked_from=origin)
    young = await archive.add_session(archive.alpha, 29, forked_from=origin)
    for fork_id in (old, young):
        await archive.add_events(fork_id, new_id(), 100, None)
    assert await archive.sweep() == Deleted(events=4)
    assert await archive.left("session_events", old) == []
    assert len(await archive.left("session_events", young)) == 1


@pytest.mark.long
async def test_more_than_a_batch(archive: Archive) -> None:
    """A session with many events, and many sessions whose inputs came at the same time."""
    await archive.keep(archive.alpha, event_days=30)
    session_id = await archive.add_session(archive.alpha, 100)
    await archive.run_sql(
        "INSERT INTO session_events (session_id, workspace_id, type, created_at, data)"
        " SELECT %s, CASE n WHEN 1 THEN %s::uuid END, 'x', now() - interval '50 days', '{}'"
        " FROM generate_series(1, 2500) n",
        *(session_id, archive.alpha),
    )
    await archive.run_sql(
        "INSERT INTO sessions (id, workspace_id, created_by)"
        " SELECT gen_random_uuid(), id, owner_id FROM workspaces, generate_series(1, 1200) WHERE id = %s",
        archive.alpha,
    )
    await archive.run_sql(
        "INSERT INTO session_events (session_id, workspace_id, type, created_at, data)"
        " SELECT id, workspace_id, 'x', now() - interval '40 days', '{}' FROM sessions WHERE id <> %s",
        session_id,
    )
    assert await archive.sweep() == Deleted(events=2500 + 1200)


async def test_files_of_people_and_of_idle_sessions(archive: Archive) -> None:
    contents = {name: bytes([number]) * 32 for number, name in enumerate(("alpha", "bravo"))}
    for sha256 in contents.values():
        await archive.run_sql(
            "INSERT INTO blobs (sha256, generation, bytes, touched_at) VALUES (%s, gen_random_uuid(), 1, %s)",
            *(sha256, ago(90)),
        )
    idle: dict[str, UUID] = {}
    for name, workspace_id in (("alpha", archive.alpha), ("bravo", archive.bravo)):
        await archive.run_sql(
            "INSERT INTO files (id, workspace_id, name, media_type, sha256, bytes, created_by)"
            " SELECT %s, id, 'x', 'text/plain', %s, 1, owner_id FROM workspaces WHERE id = %s",
            *(id_of(90), contents[name], workspace_id),
        )
        idle[name] = await archive.add_session(workspace_id, 90)
        used = await archive.add_session(workspace_id, 80)
        young = await archive.add_session(workspace_id, 5)
        await archive.add_run(idle[name], 60)
        await archive.add_run(used, 60, "waiting")
        for session_id in (idle[name], used, young):
            await archive.run_sql(
                "INSERT INTO session_files (session_id, path, kind, bytes, mode, modified_at)"
                " SELECT %s, n::text, 'folder', 0, 448, now() FROM generate_series(1, 3) n",
                session_id,
            )
    await archive.keep(archive.alpha, file_days=30)
    assert await archive.sweep() == Deleted(files=4, blobs=1)
    assert await archive.run_sql("SELECT workspace_id FROM files") == [(archive.bravo,)]
    assert await archive.run_sql("SELECT count(DISTINCT session_id) FROM session_files") == [(5,)]
    revisions = await archive.run_sql("SELECT id FROM sessions WHERE files_revision = 1")
    assert revisions == [(idle["alpha"],)], "a worker that has the folder empties it"
    assert await archive.sweep() == Deleted()
    assert await archive.sweep(retention=RetentionSettings(file_days=70)) == Deleted(files=1, blobs=1)
    assert await archive.sweep(retention=RetentionSettings(file_days=50)) == Deleted(files=3)


async def test_each_workspace_has_its_own_retention(archive: Archive) -> None:
    """Of everything that is deleted row by row."""
    ids = {"alpha": archive.alpha, "bravo": archive.bravo}
    for workspace_id in ids.values():
        session_id = await archive.add_session(workspace_id, 20)
        key_id, webhook_id = new_id(), new_id()
        for statement in (
            "INSERT INTO api_keys (id, workspace_id, lineage_id, label, prefix, secret_hash, permissions, created_by)"
            f" SELECT '{key_id}', id, '{key_id}', 'x', 'x', sha256('{key_id}'), '{{}}', owner_id FROM w",
            "INSERT INTO receipts (scope_id, operation, key, fingerprint, body, created_at)"
            f" SELECT scope, 'x', 'x', '', '', now() - interval '20 days'"
            f" FROM w, unnest(ARRAY['{key_id}', '{session_id}']::uuid[]) AS scope",
            "INSERT INTO webhooks (id, workspace_id, url, host, events, secret, created_by)"
            f" SELECT '{webhook_id}', id, 'x', 'x', '{{}}', '', owner_id FROM w",
            "INSERT INTO webhook_deliveries (id, webhook_id, event, payload, state)"
            f" SELECT '{id_of(20)}', '{webhook_id}', 'x', '', 'failed' FROM w",
            "INSERT INTO audit_events (id, workspace_id, action, object_type, object_id, detail)"
            f" SELECT '{id_of(400)}', id, 'x', 'run', id, '{{}}' FROM w",
            "INSERT INTO run_usage"
            " (workspace_id, day, run_id, session_id, model, input_tokens, cached_tokens, output_tokens)"
            " SELECT id, now()::date - days, id, id, 'x', 1, 1, 1 FROM w, unnest(ARRAY[1, 20]) AS days",
            "INSERT INTO daily_usage (workspace_id, day, shard, input_tokens, cached_tokens, output_tokens)"
            " SELECT id, now()::date - days, 0, 1, 1, 1 FROM w, unnest(ARRAY[1, 20]) AS days",
        ):
            await archive.run_sql(f"WITH w AS (SELECT * FROM workspaces WHERE id = '{workspace_id}') {statement}")
    await archive.keep(archive.alpha, receipt_days=30, delivery_days=10, audit_days=500, usage_days=10)
    small_batches = ReceiptSettings(sweep_batch=2)
    assert await archive.sweep(receipt=small_batches) == Deleted(receipts=2, deliveries=1, audit_events=1, usage=1)
    for table, expected in (
        ("audit_events", archive.alpha),
        ("daily_usage", archive.bravo),
        ("run_usage", archive.bravo),
    ):
        column = "action = 'x'" if table == "audit_events" else "day < now()::date - 10"
        assert await archive.run_sql(f"SELECT workspace_id FROM {table} WHERE {column}") == [(expected,)]
    ((kept,),) = await archive.run_sql(
        "SELECT array_agg(DISTINCT coalesce(k.workspace_id, s.workspace_id)) FROM receipts r"
        " LEFT JOIN api_keys k ON k.id = r.scope_id LEFT JOIN sessions s ON s.id = r.scope_id"
    )
    assert kept == [archive.alpha]
    deliveries = "SELECT w.workspace_id FROM webhook_deliveries d JOIN webhooks w ON w.id = d.webhook_id"
    assert await archive.run_sql(deliveries) == [(archive.bravo,)]
    assert await archive.sweep(receipt=small_batches) == Deleted()
