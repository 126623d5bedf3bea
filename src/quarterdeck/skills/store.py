"""Skills, their versions, and the rows of stored archives."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Raw

from quarterdeck.blobs.model import Blob
from quarterdeck.core.actors import ActorBody
from quarterdeck.core.ids import created_at
from quarterdeck.core.pages import bounds
from quarterdeck.db.database import Connection
from quarterdeck.skills.model import (
    Bundle,
    SkillBody,
    SkillState,
    SkillVersionBody,
    SkillVersionItem,
    StoredVersion,
    UsableVersion,
)

_ADD = "INSERT INTO skills (id, workspace_id, name, created_by) VALUES (%s, %s, %s, %s)"
_GET = """
SELECT s.id, s.workspace_id, s.name, v.frontmatter->>'description', s.latest_version, s.default_version, s.revision,
       s.archived_at, u.id, u.display_name, u.email
FROM skills s JOIN users u ON u.id = s.created_by
LEFT JOIN skill_versions v ON v.skill_id = s.id AND v.version = coalesce(s.default_version, s.latest_version)
WHERE s.workspace_id = %s AND s.id = %s
"""
# From the partial index of the list: the workspace is part of the bounds and of the order, so that PostgreSQL uses no
# other index.
_ACTIVE_NEWEST_FIRST = """
SELECT s.id, s.workspace_id, s.name, v.frontmatter->>'description', s.latest_version, s.default_version, s.revision,
       s.archived_at, u.id, u.display_name, u.email
FROM (
    SELECT * FROM skills
    WHERE (workspace_id, id) > (%s, %s) AND (workspace_id, id) < (%s, %s) AND archived_at IS NULL
    ORDER BY workspace_id DESC, id DESC LIMIT %s
) AS s JOIN users u ON u.id = s.created_by
LEFT JOIN skill_versions v ON v.skill_id = s.id AND v.version = coalesce(s.default_version, s.latest_version)
ORDER BY s.id DESC
"""
_ACTIVE_OLDEST_FIRST = """
SELECT s.id, s.workspace_id, s.name, v.frontmatter->>'description', s.latest_version, s.default_version, s.revision,
       s.archived_at, u.id, u.display_name, u.email
FROM (
    SELECT * FROM skills
    WHERE (workspace_id, id) > (%s, %s) AND (workspace_id, id) < (%s, %s) AND archived_at IS NULL
    ORDER BY workspace_id, id LIMIT %s
) AS s JOIN users u ON u.id = s.created_by
LEFT JOIN skill_versions v ON v.skill_id = s.id AND v.version = coalesce(s.default_version, s.latest_version)
ORDER BY s.id
"""
_ARCHIVED_NEWEST_FIRST = """
SELECT s.id, s.workspace_id, s.name, v.frontmatter->>'description', s.latest_version, s.default_version, s.revision,
       s.archived_at, u.id, u.display_name, u.email
FROM (
    SELECT * FROM skills
    WHERE (workspace_id, id) > (%s, %s) AND (workspace_id, id) < (%s, %s) AND archived_at IS NOT NULL
    ORDER BY workspace_id DESC, id DESC LIMIT %s
) AS s JOIN users u ON u.id = s.created_by
LEFT JOIN skill_versions v ON v.skill_id = s.id AND v.version = coalesce(s.default_version, s.latest_version)
ORDER BY s.id DESC
"""
_ARCHIVED_OLDEST_FIRST = """
SELECT s.id, s.workspace_id, s.name, v.frontmatter->>'description', s.latest_version, s.default_version, s.revision,
       s.archived_at, u.id, u.display_name, u.email
FROM (
    SELECT * FROM skills
    WHERE (workspace_id, id) > (%s, %s) AND (workspace_id, id) < (%s, %s) AND archived_at IS NOT NULL
    ORDER BY workspace_id, id LIMIT %s
) AS s JOIN users u ON u.id = s.created_by
LEFT JOIN skill_versions v ON v.skill_id = s.id AND v.version = coalesce(s.default_version, s.latest_version)
ORDER BY s.id
"""
_CHANGE = """
UPDATE skills
SET name = %s, default_version = %s, revision = revision + 1,
    archived_at = CASE WHEN %s THEN coalesce(archived_at, clock_timestamp()) END
WHERE workspace_id = %s AND id = %s
"""
# By number: the order of ids depends on the clocks of several processes.
_VERSIONS_NEWEST_FIRST = """
SELECT v.id, v.skill_id, v.version, v.bundle_bytes, v.frontmatter::text, u.id, u.display_name, u.email
FROM skill_versions v JOIN users u ON u.id = v.created_by
WHERE v.skill_id = %s
  AND v.version <= coalesce((SELECT version FROM skill_versions WHERE skill_id = %s AND id = %s), 2147483647)
ORDER BY v.version DESC LIMIT %s
"""
_VERSIONS_OLDEST_FIRST = """
SELECT v.id, v.skill_id, v.version, v.bundle_bytes, v.frontmatter::text, u.id, u.display_name, u.email
FROM skill_versions v JOIN users u ON u.id = v.created_by
WHERE v.skill_id = %s
  AND v.version >= coalesce((SELECT version FROM skill_versions WHERE skill_id = %s AND id = %s), 1)
ORDER BY v.version LIMIT %s
"""
_VERSION = """
SELECT v.id, v.skill_id, v.version, v.bundle_bytes, v.frontmatter::text, v.manifest::text, s.name,
       b.sha256, b.generation
FROM skill_versions v
JOIN skills s ON s.id = v.skill_id
JOIN blobs b ON b.sha256 = v.bundle_sha256
WHERE s.workspace_id = %s AND v.skill_id = %s AND v.version = %s
"""
# The lock keeps the skill from being deleted until the session that will use it is committed.
_USABLE = "SELECT archived_at IS NOT NULL, latest_version FROM skills WHERE workspace_id = %s AND id = %s FOR KEY SHARE"
# Leaves out a skill without a pinned version that has no version yet.
_OF_SESSION = """
SELECT v.skill_id, v.version, v.frontmatter->>'name', v.frontmatter->>'description', b.sha256, b.generation
FROM session_skills u
JOIN skills s ON s.id = u.skill_id
JOIN skill_versions v ON v.skill_id = s.id AND v.version = coalesce(u.version, s.default_version, s.latest_version)
JOIN blobs b ON b.sha256 = v.bundle_sha256
WHERE u.session_id = %s ORDER BY u.position
"""
_USED_VERSIONS = """
SELECT v.skill_id, v.version, v.frontmatter->>'name', v.frontmatter->>'description', b.sha256, b.generation
FROM unnest(%s::uuid[], %s::integer[]) AS u (skill_id, version)
JOIN skills s ON s.id = u.skill_id AND s.workspace_id = %s
JOIN skill_versions v ON v.skill_id = s.id AND v.version = u.version
JOIN blobs b ON b.sha256 = v.bundle_sha256
"""
_STORED_ARCHIVES = "SELECT DISTINCT bundle_sha256 FROM skill_versions WHERE bundle_sha256 = ANY (%s)"
_LOCK = """
SELECT revision, name, latest_version, default_version, archived_at IS NOT NULL
FROM skills WHERE workspace_id = %s AND id = %s FOR NO KEY UPDATE
"""
# Conflicts with _USABLE and with foreign keys: no further session or version of an agent can start to use the skill.
_LOCK_TO_DELETE = """
SELECT revision, name, latest_version, default_version, archived_at IS NOT NULL
FROM skills WHERE workspace_id = %s AND id = %s FOR UPDATE
"""
_NAME_TAKEN = """
SELECT EXISTS (SELECT FROM skills WHERE workspace_id = %s AND name = %s AND archived_at IS NULL)
"""
_IN_USE = """
SELECT EXISTS (SELECT FROM session_skills k WHERE k.skill_id = s.id)
    OR EXISTS (SELECT FROM agent_version_skills k WHERE k.skill_id = s.id)
FROM skills s WHERE s.workspace_id = %s AND s.id = %s
"""
# In one statement: a skill refers to its default version, and versions refer to their skill.
_DELETE = """
WITH deleted AS (DELETE FROM skills WHERE workspace_id = %s AND id = %s RETURNING id)
DELETE FROM skill_versions WHERE skill_id IN (SELECT id FROM deleted)
"""
# Pushes to one skill queue on the lock of its row, and the number is committed with the version: there are no gaps. One
# statement is enough: it reads no other row, so the snapshot from before the wait does no harm. Returns the skill as it
# was before.
_ADD_VERSION = """
WITH numbered AS (
    UPDATE skills SET latest_version = latest_version + 1, revision = revision + 1
    WHERE workspace_id = %s AND id = %s
    RETURNING id, latest_version, revision, name, default_version, archived_at IS NOT NULL AS archived
), added AS (
    INSERT INTO skill_versions
        (id, skill_id, version, bundle_sha256, bundle_bytes, frontmatter, manifest, created_by)
    SELECT %s, id, latest_version, %s, %s, %s, %s, %s FROM numbered
)
SELECT revision - 1, name, latest_version - 1, default_version, archived FROM numbered
"""


async def add(connection: Connection, skill_id: UUID, workspace_id: UUID, name: str, user_id: UUID) -> None:
    await connection.execute(_ADD, (skill_id, workspace_id, name, user_id))


async def get(connection: Connection, workspace_id: UUID, skill_id: UUID) -> SkillBody | None:
    row = await (await connection.execute(_GET, (workspace_id, skill_id))).fetchone()
    return None if row is None else _body(row)


async def page(
    connection: Connection, workspace_id: UUID, start: UUID, count: int, *, archived: bool, newest_first: bool
) -> list[SkillBody]:
    """`count` skills after the position of `start`, which may have been deleted, archived or restored."""
    if archived:
        query = _ARCHIVED_NEWEST_FIRST if newest_first else _ARCHIVED_OLDEST_FIRST
    else:
        query = _ACTIVE_NEWEST_FIRST if newest_first else _ACTIVE_OLDEST_FIRST
    lowest, highest = bounds(start, newest_first=newest_first)
    values = (workspace_id, lowest, workspace_id, highest, count)
    rows = await (await connection.execute(query, values)).fetchall()
    return [_body(row) for row in rows]


async def change(
    connection: Connection,
    workspace_id: UUID,
    skill_id: UUID,
    name: str,
    default_version: int | None,
    *,
    archived: bool,
) -> None:
    await connection.execute(_CHANGE, (name, default_version, archived, workspace_id, skill_id))


async def versions(
    connection: Connection, skill_id: UUID, start: UUID, count: int, *, newest_first: bool
) -> list[SkillVersionItem]:
    """`count` versions from that with the id `start` on, itself included; from the first where there is none."""
    query = _VERSIONS_NEWEST_FIRST if newest_first else _VERSIONS_OLDEST_FIRST
    rows = await (await connection.execute(query, (skill_id, skill_id, start, count))).fetchall()
    return [
        SkillVersionItem(
            id=version_id,
            skill_id=of_skill,
            version=number,
            bundle_bytes=bundle_bytes,
            frontmatter=Raw(frontmatter.encode()),
            created_at=created_at(version_id),
            created_by=ActorBody(*actor),
        )
        for version_id, of_skill, number, bundle_bytes, frontmatter, *actor in rows
    ]


async def version(connection: Connection, workspace_id: UUID, skill_id: UUID, number: int) -> StoredVersion | None:
    row = await (await connection.execute(_VERSION, (workspace_id, skill_id, number))).fetchone()
    if row is None:
        return None
    version_id, of_skill, version, bundle_bytes, frontmatter, manifest, name, sha256, generation = row
    body = SkillVersionBody(
        version_id, of_skill, version, bundle_bytes, Raw(frontmatter.encode()), Raw(manifest.encode())
    )
    return StoredVersion(body, name, workspace_id, Blob(sha256.hex(), generation))


async def usable(connection: Connection, workspace_id: UUID, skill_id: UUID) -> tuple[bool, int] | None:
    """Whether it is archived, and its latest version or 0. None: there is no such skill. A skill that is returned
    cannot be deleted until the transaction ends."""
    row = await (await connection.execute(_USABLE, (workspace_id, skill_id))).fetchone()
    return None if row is None else (row[0], row[1])


async def of_session(connection: Connection, session_id: UUID) -> list[UsableVersion]:
    rows = await (await connection.execute(_OF_SESSION, (session_id,))).fetchall()
    return [_usable_version(*row) for row in rows]


async def stored_archives(connection: Connection, sha256s: Sequence[str]) -> set[str]:
    wanted = [bytes.fromhex(sha256) for sha256 in sha256s]
    return {row[0].hex() for row in await (await connection.execute(_STORED_ARCHIVES, (wanted,))).fetchall()}


async def used_versions(
    connection: Connection, workspace_id: UUID, wanted: Sequence[tuple[UUID, int]]
) -> list[UsableVersion]:
    """Those that exist, in any order."""
    values = ([skill_id for skill_id, _ in wanted], [number for _, number in wanted], workspace_id)
    rows = await (await connection.execute(_USED_VERSIONS, values)).fetchall()
    return [_usable_version(*row) for row in rows]


def _usable_version(
    skill_id: UUID, version: int, name: str, description: str, sha256: bytes, generation: UUID
) -> UsableVersion:
    return UsableVersion(skill_id, version, name, description, Blob(sha256.hex(), generation))


async def lock(connection: Connection, workspace_id: UUID, skill_id: UUID) -> SkillState | None:
    """Locks the skill until the transaction ends. None: it was deleted."""
    row = await (await connection.execute(_LOCK, (workspace_id, skill_id))).fetchone()
    return None if row is None else SkillState(*row)


async def lock_to_delete(connection: Connection, workspace_id: UUID, skill_id: UUID) -> SkillState | None:
    """Waits for sessions that start to use the skill, and then keeps further ones from it. None: it was deleted."""
    row = await (await connection.execute(_LOCK_TO_DELETE, (workspace_id, skill_id))).fetchone()
    return None if row is None else SkillState(*row)


async def is_name_taken(connection: Connection, workspace_id: UUID, name: str) -> bool:
    """By an active skill."""
    row = await (await connection.execute(_NAME_TAKEN, (workspace_id, name))).fetchone()
    return row is not None and row[0]


async def is_in_use(connection: Connection, workspace_id: UUID, skill_id: UUID) -> bool:
    row = await (await connection.execute(_IN_USE, (workspace_id, skill_id))).fetchone()
    return row is not None and row[0]


async def delete(connection: Connection, workspace_id: UUID, skill_id: UUID) -> None:
    """With its versions. The sweep deletes archives that no other version uses."""
    await connection.execute(_DELETE, (workspace_id, skill_id))


async def add_version(
    connection: Connection, version_id: UUID, workspace_id: UUID, skill_id: UUID, bundle: Bundle, user_id: UUID
) -> SkillState | None:
    """Returns the skill as it was before, or None if it was deleted. The version's number is `latest_version + 1`."""
    cursor = await connection.execute(
        _ADD_VERSION,
        (
            workspace_id,
            skill_id,
            version_id,
            bytes.fromhex(bundle.manifest.archive_sha256),
            bundle.bundle_bytes,
            msgspec.json.encode(bundle.frontmatter).decode(),
            msgspec.json.encode(bundle.manifest).decode(),
            user_id,
        ),
    )
    row = await cursor.fetchone()
    return None if row is None else SkillState(*row)


def _body(row: tuple[Any, ...]) -> SkillBody:
    skill_id, workspace_id, name, description, latest_version, default_version, revision, archived_at, *actor = row
    return SkillBody(
        id=skill_id,
        workspace_id=workspace_id,
        name=name,
        # A block scalar ends with a line break.
        description=None if description is None else description.strip(),
        latest_version=latest_version or None,
        default_version=default_version,
        revision=revision,
        archived_at=archived_at,
        created_at=created_at(skill_id),
        created_by=ActorBody(*actor),
    )
