"""Skills, their versions, and the rows of stored archives."""

from collections.abc import Sequence
from uuid import UUID

import msgspec
from msgspec import Raw

from quarterdeck.blobs.model import Blob
from quarterdeck.core.versioned import VersionedState
from quarterdeck.db.database import Connection
from quarterdeck.db.records import VersionedRecords, VersionPages, fetch_bool, fetch_column, fetch_record, fetch_records
from quarterdeck.skills.model import (
    Bundle,
    SkillBody,
    SkillVersionBody,
    SkillVersionItem,
    StoredVersion,
    UsableVersion,
)

_SKILLS = VersionedRecords(
    SkillBody,
    table="skills",
    # A block scalar of YAML ends with a line break.
    columns="""r.id, r.workspace_id, r.name, btrim(v.frontmatter->>'description', E' \\t\\r\\n') AS description,
        nullif(r.latest_version, 0) AS latest_version, r.default_version, r.revision, r.archived_at,
        actor(u) AS created_by""",
    joins="""JOIN users u ON u.id = r.created_by
        LEFT JOIN skill_versions v
            ON v.skill_id = r.id AND v.version = coalesce(r.default_version, r.latest_version)""",
)
add, get, page, change, is_name_taken = _SKILLS.add, _SKILLS.get, _SKILLS.page, _SKILLS.change, _SKILLS.is_name_taken
lock = _SKILLS.lock
# The skill cannot be deleted until the session that will use it is committed.
_USABLE = _SKILLS.state_query + "FOR KEY SHARE"
# Conflicts with _USABLE and with foreign keys: no further session or version of an agent can start to use the skill.
_LOCK_TO_DELETE = _SKILLS.state_query + "FOR UPDATE"
_VERSIONS = VersionPages(
    SkillVersionItem,
    table="skill_versions",
    owner="skill_id",
    columns="r.id, r.skill_id, r.version, r.bundle_bytes, r.frontmatter, actor(u) AS created_by",
    joins="JOIN users u ON u.id = r.created_by",
)
versions = _VERSIONS.page
_VERSION = """
SELECT v.id, v.skill_id, v.version, v.bundle_bytes, v.frontmatter::text, v.manifest::text, s.name,
       b.sha256, b.generation
FROM skill_versions v
JOIN skills s ON s.id = v.skill_id
JOIN blobs b ON b.sha256 = v.bundle_sha256
WHERE s.workspace_id = %s AND v.skill_id = %s AND v.version = %s
"""
# Leaves out a skill without a pinned version that has no version yet.
_OF_SESSION = """
SELECT v.skill_id, v.version, v.frontmatter->>'name' AS name, v.frontmatter->>'description' AS description,
       encode(v.bundle_sha256, 'hex') AS archive
FROM session_skills u
JOIN skills s ON s.id = u.skill_id
JOIN skill_versions v ON v.skill_id = s.id AND v.version = coalesce(u.version, s.default_version, s.latest_version)
WHERE u.session_id = %s ORDER BY u.position
"""
_USED_VERSIONS = """
SELECT v.skill_id, v.version, v.frontmatter->>'name' AS name, v.frontmatter->>'description' AS description,
       encode(v.bundle_sha256, 'hex') AS archive
FROM unnest(%s::uuid[], %s::integer[]) AS u (skill_id, version)
JOIN skills s ON s.id = u.skill_id AND s.workspace_id = %s
JOIN skill_versions v ON v.skill_id = s.id AND v.version = u.version
"""
_STORED_ARCHIVES = "SELECT DISTINCT bundle_sha256 FROM skill_versions WHERE bundle_sha256 = ANY (%s)"
_IN_USE = """
SELECT EXISTS (SELECT FROM session_skills k WHERE k.skill_id = s.id)
    OR EXISTS (SELECT FROM agent_version_skills k WHERE k.skill_id = s.id)
FROM skills s WHERE s.workspace_id = %s AND s.id = %s
"""
# A JSON text instead of an array: psycopg takes long to write arrays of many values.
_ADD_CONTENTS = """
INSERT INTO skill_version_contents (version_id, sha256)
SELECT %s, decode(one, 'hex') FROM json_array_elements_text(%s::json) AS one
"""
# By ctid, and not too many in one statement: a version has up to ten thousand contents.
_DELETE_CONTENTS = """
DELETE FROM skill_version_contents WHERE ctid = ANY (ARRAY(
    SELECT c.ctid FROM skill_version_contents c
    JOIN skill_versions v ON v.id = c.version_id JOIN skills s ON s.id = v.skill_id
    WHERE s.workspace_id = %s AND s.id = %s LIMIT %s
))
"""
_DELETE_BATCH = 50_000
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
SELECT revision - 1 AS revision, name, latest_version - 1 AS latest_version, default_version, archived FROM numbered
"""


async def version(connection: Connection, workspace_id: UUID, skill_id: UUID, number: int) -> StoredVersion | None:
    row = await (await connection.execute(_VERSION, (workspace_id, skill_id, number))).fetchone()
    if row is None:
        return None
    version_id, of_skill, version, bundle_bytes, frontmatter, manifest, name, sha256, generation = row
    body = SkillVersionBody(
        version_id, of_skill, version, bundle_bytes, Raw(frontmatter.encode()), Raw(manifest.encode())
    )
    return StoredVersion(body, name, workspace_id, Blob(sha256.hex(), generation))


async def usable(connection: Connection, workspace_id: UUID, skill_id: UUID) -> VersionedState | None:
    """None: there is no such skill. A skill that is returned cannot be deleted until the transaction ends."""
    return await fetch_record(connection, VersionedState, _USABLE, (workspace_id, skill_id))


async def of_session(connection: Connection, session_id: UUID) -> list[UsableVersion]:
    return await fetch_records(connection, UsableVersion, _OF_SESSION, (session_id,))


async def stored_archives(connection: Connection, sha256s: Sequence[str]) -> set[str]:
    """Those of the archives that a version of a skill still has, in any workspace."""
    wanted = [bytes.fromhex(sha256) for sha256 in sha256s]
    return {sha256.hex() for sha256 in await fetch_column(connection, _STORED_ARCHIVES, (wanted,))}


async def used_versions(
    connection: Connection, workspace_id: UUID, wanted: Sequence[tuple[UUID, int]]
) -> list[UsableVersion]:
    """Those that exist, by skill and number, in any order."""
    values = ([skill_id for skill_id, _ in wanted], [number for _, number in wanted], workspace_id)
    return await fetch_records(connection, UsableVersion, _USED_VERSIONS, values)


async def lock_to_delete(connection: Connection, workspace_id: UUID, skill_id: UUID) -> VersionedState | None:
    """Waits for sessions that start to use the skill, and then keeps further ones from it. None: it was deleted."""
    return await fetch_record(connection, VersionedState, _LOCK_TO_DELETE, (workspace_id, skill_id))


async def is_in_use(connection: Connection, workspace_id: UUID, skill_id: UUID) -> bool:
    return await fetch_bool(connection, _IN_USE, (workspace_id, skill_id))


async def delete(connection: Connection, workspace_id: UUID, skill_id: UUID) -> None:
    """With its versions. The sweep deletes contents that nothing else uses."""
    values = (workspace_id, skill_id, _DELETE_BATCH)
    while (await connection.execute(_DELETE_CONTENTS, values)).rowcount == _DELETE_BATCH:
        pass
    await connection.execute(_DELETE, (workspace_id, skill_id))


async def add_version(
    connection: Connection, version_id: UUID, workspace_id: UUID, skill_id: UUID, bundle: Bundle, user_id: UUID
) -> VersionedState | None:
    """Returns the skill as it was before, or None if it was deleted. The version's number is `latest_version + 1`. The
    archive and the contents of its files are in the store."""
    stored = (
        bytes.fromhex(bundle.manifest.archive_sha256),
        bundle.bundle_bytes,
        msgspec.json.encode(bundle.frontmatter).decode(),
        msgspec.json.encode(bundle.manifest).decode(),
    )
    values = (workspace_id, skill_id, version_id, *stored, user_id)
    before = await fetch_record(connection, VersionedState, _ADD_VERSION, values)
    if before is not None:
        contents = msgspec.json.encode(list(bundle.starts)).decode()
        await connection.execute(_ADD_CONTENTS, (version_id, contents))
    return before
