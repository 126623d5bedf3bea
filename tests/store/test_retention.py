"""What retention deletes, and what it must keep."""

import asyncio
import hashlib
import io
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from msgspec import Struct

from quarterdeck.blobs import service as blobs
from quarterdeck.blobs import store
from quarterdeck.blobs.blob_store import BlobStore, open_blob_store
from quarterdeck.blobs.model import Blob
from quarterdeck.blobs.service import NewBlob
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.ids import first_id_at, new_id
from quarterdeck.core.settings import AuditSettings, BlobSettings, DatabaseSettings, Settings
from quarterdeck.db.database import Connection, Database
from quarterdeck.db.migrate import migrate
from quarterdeck.files import store as files
from quarterdeck.files.model import Upload
from quarterdeck.retention import Deleted, delete_expired
from quarterdeck.skills import store as skill_store
from quarterdeck.skills.archive import read_bundle
from quarterdeck.workspaces import service as workspaces
from tests.world import AS_OWNER, app_url, bundle

OLD = "UPDATE blobs SET touched_at = now() - interval '25 hours'"


class Service(Struct, frozen=True):
    settings: Settings
    database: Database
    blob_store: BlobStore

    async def delete_expired(self) -> Deleted:
        return await delete_expired(self.database, self.blob_store, self.settings)

    async def run_as_owner(self, statement: str) -> list[tuple[Any, ...]]:
        """For statements that no process of the service would run."""
        url = self.settings.database.owner_url
        assert url is not None
        async with await psycopg.AsyncConnection.connect(url, autocommit=True, options=AS_OWNER) as connection:
            cursor = await connection.execute(statement.encode())
            return await cursor.fetchall() if cursor.description else []

    async def put(self, archive: bytes) -> str:
        """Stores an archive the way a push does just before the transaction of its version."""
        sha256 = hashlib.sha256(archive).hexdigest()

        await blobs.put(self.database, self.blob_store, {sha256: NewBlob(io.BytesIO(archive), len(archive))})
        return sha256

    async def put_bundle(self, archive: bytes) -> None:
        """The archive and its only file."""
        contents = io.BytesIO()
        read_bundle(io.BytesIO(archive), self.settings.bundle, contents)
        await self.put(archive)
        await self.put(contents.getvalue())


@pytest.fixture
async def service(database_url: str, tmp_path: Path) -> AsyncIterator[Service]:
    settings = Settings(database=DatabaseSettings(url=app_url(database_url), owner_url=database_url))
    database = Database(app_url(database_url), settings.database)
    await database.open()
    yield Service(settings, database, open_blob_store(BlobSettings(), tmp_path))
    await database.close()


def stored(folder: Path) -> list[Path]:
    return [path for path in (folder / "blobs").rglob("*") if path.is_file()]


async def add_version(connection: Connection, archive: bytes) -> None:
    workspace_id = await workspaces.create_workspace(connection, "x", "a@example.com")
    cursor = await connection.execute("SELECT owner_id FROM workspaces")
    ((owner_id,),) = await cursor.fetchall()
    skill_id = new_id()
    await skill_store.add(connection, skill_id, workspace_id, "x", owner_id)
    read = read_bundle(io.BytesIO(archive), Settings().bundle)
    before = await skill_store.add_version(connection, new_id(), workspace_id, skill_id, read, owner_id)
    assert before is not None
    assert before.latest_version == 0


async def test_an_old_archive_without_a_version_is_removed(service: Service, tmp_path: Path) -> None:
    await service.put(bundle())
    assert (await service.delete_expired()).blobs == 0, "its push may still be under way"
    await service.run_as_owner(OLD)
    assert len(stored(tmp_path)) == 1
    assert (await service.delete_expired()).blobs == 1
    assert stored(tmp_path) == []
    assert await service.run_as_owner("SELECT sha256 FROM blobs UNION SELECT sha256 FROM condemned_blobs") == []


@pytest.mark.long
async def test_all_old_archives_go_at_once(service: Service) -> None:
    await service.run_as_owner(
        "INSERT INTO blobs (sha256, generation, bytes, touched_at)"
        " SELECT sha256(n::text::bytea), gen_random_uuid(), 1, now() - interval '2 days'"
        " FROM generate_series(1, 250) n",
    )
    assert (await service.delete_expired()).blobs == 250


async def test_a_blob_is_kept_until_no_row_refers_to_it(service: Service, tmp_path: Path) -> None:
    """Of uploaded files, files of sessions, and attachments."""
    sha256 = bytes.fromhex(await service.put(b"content"))

    async def refer(connection: Connection) -> None:
        workspace_id = await workspaces.create_workspace(connection, "x", "a@example.com")
        ((owner_id,),) = await (await connection.execute("SELECT owner_id FROM workspaces")).fetchall()
        await files.add(connection, new_id(), workspace_id, Upload("x", "text/plain", 7, sha256.hex()), owner_id)
        await connection.execute(
            "INSERT INTO session_files (session_id, path, kind, sha256, bytes, mode, modified_at)"
            " VALUES (%s, 'x', 'file', %s, 7, 420, now())",
            (new_id(), sha256),
        )
        await connection.execute("INSERT INTO session_attachments VALUES (%s, %s)", (new_id(), sha256))

    await service.database.transaction(refer, repeatable=True)
    await service.run_as_owner(OLD)
    for table in ("files", "session_files", "session_attachments"):
        assert (await service.delete_expired()).blobs == 0
        assert len(stored(tmp_path)) == 1
        await service.run_as_owner(f"DELETE FROM {table}")
    assert (await service.delete_expired()).blobs == 1
    assert stored(tmp_path) == []


@pytest.mark.parametrize("archive_deleted", [False, True])
async def test_a_deletion_that_was_interrupted_is_finished_by_the_next(
    service: Service, tmp_path: Path, archive_deleted: bool
) -> None:
    sha256 = bytes.fromhex(await service.put(bundle()))

    async def condemn(connection: Connection) -> None:
        await store.condemn(connection, sha256)

    await service.database.transaction(condemn, repeatable=True)
    if archive_deleted:
        stored(tmp_path)[0].unlink()
    assert (await service.delete_expired()).blobs == 1
    assert stored(tmp_path) == []
    assert await service.run_as_owner("SELECT sha256 FROM condemned_blobs") == []


async def test_a_late_delete_cannot_reach_what_a_later_push_wrote(service: Service, tmp_path: Path) -> None:
    """The object store may be slow: the same content that is pushed meanwhile has another name."""
    sha256 = bytes.fromhex(await service.put(bundle()))

    async def condemn(connection: Connection) -> list[Blob]:
        await store.condemn(connection, sha256)
        return await store.condemned(connection, 10)

    (condemned,) = await service.database.transaction(condemn, repeatable=True)
    await service.put(bundle())
    assert len(stored(tmp_path)) == 2
    await service.blob_store.delete(condemned)
    assert len(stored(tmp_path)) == 1
    assert (await service.delete_expired()).blobs == 1, "the condemned row is removed"
    assert [path.read_bytes() for path in stored(tmp_path)] == [bundle()]


async def test_an_archive_with_a_version_stays_and_so_do_its_files(service: Service, tmp_path: Path) -> None:
    await service.put_bundle(bundle())

    async def work(connection: Connection) -> None:
        await add_version(connection, bundle())

    await service.database.transaction(work, repeatable=False)
    await service.run_as_owner(OLD)
    assert (await service.delete_expired()).blobs == 0
    assert len(stored(tmp_path)) == 2


async def test_a_version_being_committed_keeps_its_archive(service: Service, tmp_path: Path) -> None:
    """The version's transaction is open while retention runs: neither the row nor the archive may go."""
    await service.put_bundle(bundle())
    await service.run_as_owner(OLD)
    inserted, deleted = asyncio.Event(), asyncio.Event()

    async def push(connection: Connection) -> None:
        await add_version(connection, bundle())
        inserted.set()
        await deleted.wait()

    pushing = asyncio.create_task(service.database.transaction(push, repeatable=False))
    await inserted.wait()
    assert (await service.delete_expired()).blobs == 0
    deleted.set()
    await pushing
    assert (await service.delete_expired()).blobs == 0
    assert len(stored(tmp_path)) == 2


async def test_a_push_of_an_archive_that_is_being_deleted_adds_its_row_again(
    service: Service, database_url: str
) -> None:
    archive = bundle()
    sha256 = bytes.fromhex(await service.put(archive))
    await service.run_as_owner(OLD)
    async with await psycopg.AsyncConnection.connect(database_url, options="-c search_path=app") as deleting:
        assert await store.lock_unused(deleting, sha256, 24)
        touching = asyncio.create_task(service.put(archive))
        await asyncio.sleep(0.3)
        assert not touching.done(), "the push waits for the deletion"
        await store.condemn(deleting, sha256)
        await deleting.commit()
    await touching
    assert await service.run_as_owner("SELECT sha256 FROM blobs") == [(sha256,)]
    ((old,), (new,)) = await service.run_as_owner(
        "SELECT generation FROM condemned_blobs UNION ALL SELECT generation FROM blobs"
    )
    assert old != new


async def test_receipts_are_kept_for_seven_days(service: Service) -> None:
    await service.run_as_owner(
        "INSERT INTO receipts (scope_id, operation, key, fingerprint, body, created_at)"
        " SELECT gen_random_uuid(), 'x', h::text, '', '', now() - make_interval(hours => h)"
        " FROM unnest(ARRAY[1, 24, 167, 169, 1000]) h",
    )
    assert (await service.delete_expired()).receipts == 2
    assert sorted(await service.run_as_owner("SELECT key FROM receipts")) == [("1",), ("167",), ("24",)]


@pytest.mark.long
async def test_audit_events_are_kept_for_a_year(service: Service) -> None:
    async def work(connection: Connection) -> UUID:
        return await workspaces.create_workspace(connection, "x", "a@example.com")

    workspace_id = await service.database.transaction(work, repeatable=False)
    day = timedelta(days=1)
    # More than one batch of those that go.
    ages = [timedelta(), 364 * day, 365 * day - timedelta(minutes=5), *[366 * day] * 1_500, 4_000 * day]
    ids = [UUID(int=first_id_at(datetime.now(UTC) - age).int + number) for number, age in enumerate(ages)]

    async def add(connection: Connection) -> None:
        await connection.cursor().executemany(
            "INSERT INTO audit_events (id, workspace_id, action, object_type, object_id, detail)"
            " VALUES (%s, %s, 'x', 'skill', %s, '{}')",
            [(event_id, workspace_id, event_id) for event_id in ids],
        )

    await service.database.transaction(add, repeatable=False)
    assert (await service.delete_expired()).audit_events == 1_501
    left = {event_id for (event_id,) in await service.run_as_owner("SELECT id FROM audit_events WHERE action = 'x'")}
    assert left == set(ids[:3])
    assert (await service.delete_expired()).audit_events == 0
    assert await service.run_as_owner("SELECT action FROM audit_events WHERE action <> 'x'") == [("create_workspace",)]


@pytest.mark.long
async def test_migrate_sets_how_long_audit_events_are_kept(service: Service, database_url: str) -> None:
    async def work(connection: Connection) -> None:
        workspace_id = await workspaces.create_workspace(connection, "x", "a@example.com")
        for hours in (23, 25):
            event_id = first_id_at(datetime.now(UTC) - timedelta(hours=hours))
            await connection.execute(
                "INSERT INTO audit_events (id, workspace_id, action, object_type, object_id, detail)"
                " VALUES (%s, %s, 'x', 'skill', %s, '{}')",
                (event_id, workspace_id, event_id),
            )

    await service.database.transaction(work, repeatable=False)
    assert (await service.delete_expired()).audit_events == 0
    migrate(database_url, audit=AuditSettings(keep_days=2))
    for audit in (None, AuditSettings()):
        migrate(database_url, audit=audit)
        assert await service.run_as_owner("SELECT keep_days FROM audit_retention") == [(2,)], "no setting, no change"
    assert (await service.delete_expired()).audit_events == 0
    migrate(database_url, audit=AuditSettings(keep_days=1))
    assert (await service.delete_expired()).audit_events == 1
    await service.run_as_owner("DELETE FROM audit_retention")
    migrate(database_url)
    assert await service.run_as_owner("SELECT keep_days FROM audit_retention") == []
    migrate(database_url, audit=AuditSettings())
    assert await service.run_as_owner("SELECT keep_days FROM audit_retention") == [(365,)]


async def test_no_audit_event_goes_without_a_retention_time(service: Service) -> None:
    await service.run_as_owner("DELETE FROM audit_retention")
    await service.run_as_owner("INSERT INTO users (id, email) VALUES (gen_random_uuid(), 'a@example.com')")
    await service.run_as_owner(
        "INSERT INTO workspaces (id, name, owner_id) SELECT gen_random_uuid(), 'x', id FROM users"
    )
    await service.run_as_owner(
        "INSERT INTO audit_events (id, workspace_id, action, object_type, object_id, detail)"
        " SELECT '00000000-0000-7000-8000-000000000000', id, 'x', 'skill', id, '{}' FROM workspaces",
    )
    assert (await service.delete_expired()).audit_events == 0


async def test_deliveries_that_ended_are_kept_for_thirty_days(service: Service) -> None:
    ids = {days: first_id_at(datetime.now(UTC) - timedelta(days=days)) for days in (0, 29, 31, 365)}
    for days, state in ((0, "failed"), (29, "delivered"), (31, "delivered"), (365, "pending")):
        await service.run_as_owner(
            "INSERT INTO webhook_deliveries (id, webhook_id, event, payload, state)"
            f" VALUES ('{ids[days]}', gen_random_uuid(), 'x', '', '{state}')",
        )
    assert (await service.delete_expired()).deliveries == 1
    left = {identifier for (identifier,) in await service.run_as_owner("SELECT id FROM webhook_deliveries")}
    assert left == {ids[0], ids[29], ids[365]}, "a pending one may have been requested again"


async def test_one_deletion_that_fails_does_not_stop_the_others(service: Service) -> None:
    await service.run_as_owner(
        "INSERT INTO webhook_deliveries (id, webhook_id, event, payload, state)"
        f" VALUES ('{first_id_at(datetime.now(UTC) - timedelta(days=31))}', gen_random_uuid(), 'x', '', 'failed')",
    )
    await service.run_as_owner("ALTER TABLE receipts RENAME TO mislaid")
    with pytest.raises(ServiceError):
        await service.delete_expired()
    assert await service.run_as_owner("SELECT FROM webhook_deliveries") == []
