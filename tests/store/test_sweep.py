"""What the sweep takes, and what it must leave."""

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
from quarterdeck.parts import Parts

from quarterdeck.app import build_parts
from quarterdeck.core.actors import Origin
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.ids import first_id_at, new_id
from quarterdeck.core.settings import AuditSettings, DatabaseSettings, ServerSettings, Settings
from quarterdeck.db.database import Connection
from quarterdeck.db.migrate import migrate
from quarterdeck.retention import sweep
from quarterdeck.skills import store
from quarterdeck.skills.bundle import read_bundle
from quarterdeck.skills.model import NewVersion, Pushed, PushVerdict
from quarterdeck.workspaces import service as workspaces
from tests.world import AS_OWNER, app_url, bundle

_ADD_KEY = """
INSERT INTO api_keys (id, workspace_id, lineage_id, label, prefix, secret_hash, permissions, created_by)
VALUES (%s, %s, %s, 'x', 'x', %s, '{skill.manage}', %s)
"""
OLD = "UPDATE bundles SET touched_at = now() - interval '25 hours'"


@pytest.fixture
async def parts(database_url: str, tmp_path: Path) -> AsyncIterator[Parts]:
    database = DatabaseSettings(url=app_url(database_url), owner_url=database_url)
    parts = build_parts(Settings(database=database, server=ServerSettings(data_dir=str(tmp_path))))
    await parts.database.open()
    yield parts
    await parts.database.close()


async def run(parts: Parts, statement: str) -> list[tuple[Any, ...]]:
    """As the owner: what no process of the service would do."""
    url = parts.settings.database.owner_url
    assert url is not None
    async with await psycopg.AsyncConnection.connect(url, autocommit=True, options=AS_OWNER) as connection:
        cursor = await connection.execute(statement.encode())
        return await cursor.fetchall() if cursor.description else []


async def keep(parts: Parts, archive: bytes) -> str:
    """An archive as a push leaves it just before its version's transaction."""
    sha256 = hashlib.sha256(archive).hexdigest()

    generation = await parts.pushes.touch(bytes.fromhex(sha256), len(archive))
    await parts.bundles.put(sha256, generation, io.BytesIO(archive))
    return sha256


def stored(folder: Path) -> list[Path]:
    return [path for path in (folder / "bundles").rglob("*") if path.is_file()]


async def add_version(connection: Connection, archive: bytes) -> None:
    workspace_id = await workspaces.create_workspace(connection, "x", "a@example.com")
    cursor = await connection.execute("SELECT owner_id FROM workspaces")
    ((owner_id,),) = await cursor.fetchall()
    skill_id = new_id()
    await store.add(connection, skill_id, workspace_id, "x", owner_id)
    read = read_bundle(io.BytesIO(archive), Settings().bundle)
    secret_hash = hashlib.sha256(skill_id.bytes).digest()
    await connection.execute(_ADD_KEY, (skill_id, workspace_id, skill_id, secret_hash, owner_id))
    new = NewVersion(
        secret_hash=secret_hash,
        origin=Origin(),
        if_match=None,
        idempotency_key=None,
        fingerprint=None,
        id=new_id(),
        skill_id=skill_id,
        bundle_sha256=bytes.fromhex(read.manifest.archive_sha256),
        bundle_bytes=read.bundle_bytes,
        frontmatter="{}",
        manifest="{}",
    )
    assert await store.push(connection, new) == Pushed(PushVerdict.PUSHED, 1, None)


async def test_an_old_archive_that_nothing_names_is_removed(parts: Parts, tmp_path: Path) -> None:
    await keep(parts, bundle())
    assert (await sweep(parts)).bundles == 0, "a push may still be on its way"
    await run(parts, OLD)
    assert len(stored(tmp_path)) == 1
    assert (await sweep(parts)).bundles == 1
    assert stored(tmp_path) == []
    assert await run(parts, "SELECT sha256 FROM bundles UNION SELECT sha256 FROM condemned_bundles") == []


async def test_all_of_them_go_in_one_sweep(parts: Parts) -> None:
    await run(
        parts,
        "INSERT INTO bundles (sha256, generation, bytes, touched_at)"
        " SELECT sha256(n::text::bytea), gen_random_uuid(), 1, now() - interval '2 days'"
        " FROM generate_series(1, 250) n",
    )
    assert (await sweep(parts)).bundles == 250


@pytest.mark.parametrize("archive_deleted", [False, True])
async def test_a_sweep_that_was_cut_off_is_finished_by_the_next(
    parts: Parts, tmp_path: Path, archive_deleted: bool
) -> None:
    sha256 = bytes.fromhex(await keep(parts, bundle()))

    async def condemn(connection: Connection) -> None:
        await store.condemn_bundle(connection, sha256)

    await parts.database.transaction(condemn, repeatable=True)
    if archive_deleted:
        stored(tmp_path)[0].unlink()
    assert (await sweep(parts)).bundles == 1
    assert stored(tmp_path) == []
    assert await run(parts, "SELECT sha256 FROM condemned_bundles") == []


async def test_a_late_delete_cannot_reach_what_a_later_push_wrote(parts: Parts, tmp_path: Path) -> None:
    """The store may take its time: the same content pushed meanwhile lies under another name."""
    sha256 = bytes.fromhex(await keep(parts, bundle()))

    async def condemn(connection: Connection) -> list[tuple[bytes, UUID]]:
        await store.condemn_bundle(connection, sha256)
        return await store.condemned_bundles(connection, 10)

    ((_, generation),) = await parts.database.transaction(condemn, repeatable=True)
    await keep(parts, bundle())
    assert len(stored(tmp_path)) == 2
    await parts.bundles.delete(sha256.hex(), generation)
    assert len(stored(tmp_path)) == 1
    assert (await sweep(parts)).bundles == 1, "what was condemned is forgotten"
    assert [path.read_bytes() for path in stored(tmp_path)] == [bundle()]


async def test_an_archive_with_a_version_stays(parts: Parts, tmp_path: Path) -> None:
    await keep(parts, bundle())

    async def work(connection: Connection) -> None:
        await add_version(connection, bundle())

    await parts.database.transaction(work, repeatable=False)
    await run(parts, OLD)
    assert (await sweep(parts)).bundles == 0
    assert len(stored(tmp_path)) == 1


async def test_a_version_being_committed_keeps_its_archive(parts: Parts, tmp_path: Path) -> None:
    """The version's transaction is open while the sweep looks: neither its row nor the archive may go."""
    await keep(parts, bundle())
    await run(parts, OLD)
    inserted, swept = asyncio.Event(), asyncio.Event()

    async def push(connection: Connection) -> None:
        await add_version(connection, bundle())
        inserted.set()
        await swept.wait()

    pushing = asyncio.create_task(parts.database.transaction(push, repeatable=False))
    await inserted.wait()
    assert (await sweep(parts)).bundles == 0
    swept.set()
    await pushing
    assert (await sweep(parts)).bundles == 0
    assert len(stored(tmp_path)) == 1


async def test_a_push_that_touches_an_archive_while_it_is_swept_finds_its_row_again(
    parts: Parts, database_url: str
) -> None:
    archive = bundle()
    sha256 = bytes.fromhex(await keep(parts, archive))
    await run(parts, OLD)
    async with await psycopg.AsyncConnection.connect(database_url, options="-c search_path=app") as sweeping:
        assert await store.lock_unused_bundle(sweeping, sha256, 24)
        touching = asyncio.create_task(keep(parts, archive))
        await asyncio.sleep(0.3)
        assert not touching.done(), "the touch waits for the sweep"
        await store.condemn_bundle(sweeping, sha256)
        await sweeping.commit()
    await touching
    assert await run(parts, "SELECT sha256 FROM bundles") == [(sha256,)]
    ((old,), (new,)) = await run(
        parts, "SELECT generation FROM condemned_bundles UNION ALL SELECT generation FROM bundles"
    )
    assert old != new


async def test_receipts_are_kept_for_seven_days(parts: Parts) -> None:
    await run(
        parts,
        "INSERT INTO receipts (scope_id, operation, key, fingerprint, body, created_at)"
        " SELECT gen_random_uuid(), 'x', h::text, '', '', now() - make_interval(hours => h)"
        " FROM unnest(ARRAY[1, 24, 167, 169, 1000]) h",
    )
    assert (await sweep(parts)).receipts == 2
    assert sorted(await run(parts, "SELECT key FROM receipts")) == [("1",), ("167",), ("24",)]


async def test_audit_events_are_kept_for_a_year(parts: Parts) -> None:
    async def work(connection: Connection) -> UUID:
        return await workspaces.create_workspace(connection, "x", "a@example.com")

    workspace_id = await parts.database.transaction(work, repeatable=False)
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

    await parts.database.transaction(add, repeatable=False)
    assert (await sweep(parts)).audit_events == 1_501
    left = {event_id for (event_id,) in await run(parts, "SELECT id FROM audit_events WHERE action = 'x'")}
    assert left == set(ids[:3])
    assert (await sweep(parts)).audit_events == 0
    assert await run(parts, "SELECT action FROM audit_events WHERE action <> 'x'") == [("create_workspace",)]


async def test_the_owner_says_how_long_audit_events_are_kept(parts: Parts, database_url: str) -> None:
    async def work(connection: Connection) -> None:
        workspace_id = await workspaces.create_workspace(connection, "x", "a@example.com")
        for hours in (23, 25):
            event_id = first_id_at(datetime.now(UTC) - timedelta(hours=hours))
            await connection.execute(
                "INSERT INTO audit_events (id, workspace_id, action, object_type, object_id, detail)"
                " VALUES (%s, %s, 'x', 'skill', %s, '{}')",
                (event_id, workspace_id, event_id),
            )

    await parts.database.transaction(work, repeatable=False)
    assert (await sweep(parts)).audit_events == 0
    migrate(database_url, audit=AuditSettings(keep_days=2))
    for audit in (None, AuditSettings()):
        migrate(database_url, audit=audit)
        assert await run(parts, "SELECT keep_days FROM audit_retention") == [(2,)], "who names no time changes none"
    assert (await sweep(parts)).audit_events == 0
    migrate(database_url, audit=AuditSettings(keep_days=1))
    assert (await sweep(parts)).audit_events == 1
    await run(parts, "DELETE FROM audit_retention")
    migrate(database_url)
    assert await run(parts, "SELECT keep_days FROM audit_retention") == []
    migrate(database_url, audit=AuditSettings())
    assert await run(parts, "SELECT keep_days FROM audit_retention") == [(365,)]


async def test_nothing_goes_until_the_owner_says_how_long_it_is_kept(parts: Parts) -> None:
    await run(parts, "DELETE FROM audit_retention")
    await run(parts, "INSERT INTO users (id, email) VALUES (gen_random_uuid(), 'a@example.com')")
    await run(parts, "INSERT INTO workspaces (id, name, owner_id) SELECT gen_random_uuid(), 'x', id FROM users")
    await run(
        parts,
        "INSERT INTO audit_events (id, workspace_id, action, object_type, object_id, detail)"
        " SELECT '00000000-0000-7000-8000-000000000000', id, 'x', 'skill', id, '{}' FROM workspaces",
    )
    assert (await sweep(parts)).audit_events == 0


async def test_deliveries_that_ended_are_kept_for_thirty_days(parts: Parts) -> None:
    ids = {days: first_id_at(datetime.now(UTC) - timedelta(days=days)) for days in (0, 29, 31, 365)}
    for days, state in ((0, "failed"), (29, "delivered"), (31, "delivered"), (365, "pending")):
        await run(
            parts,
            "INSERT INTO webhook_deliveries (id, webhook_id, event, payload, state)"
            f" VALUES ('{ids[days]}', gen_random_uuid(), 'x', '', '{state}')",
        )
    assert (await sweep(parts)).deliveries == 1
    left = {identifier for (identifier,) in await run(parts, "SELECT id FROM webhook_deliveries")}
    assert left == {ids[0], ids[29], ids[365]}, "one that waits may have been asked for again"


async def test_a_part_that_fails_keeps_the_others_from_nothing(parts: Parts) -> None:
    await run(
        parts,
        "INSERT INTO webhook_deliveries (id, webhook_id, event, payload, state)"
        f" VALUES ('{first_id_at(datetime.now(UTC) - timedelta(days=31))}', gen_random_uuid(), 'x', '', 'failed')",
    )
    await run(parts, "ALTER TABLE receipts RENAME TO mislaid")
    with pytest.raises(ServiceError):
        await sweep(parts)
    assert await run(parts, "SELECT FROM webhook_deliveries") == []
