"""Skills, their versions, and the rows that stand for stored archives."""

from uuid import UUID

import msgspec

from quarterdeck.db.database import Connection
from quarterdeck.skills.model import Archive, Bundle, Manifest, UsableVersion

_ADD = "INSERT INTO skills (id, workspace_id, name, created_by) VALUES (%s, %s, %s, %s)"
_USABLE = """
SELECT EXISTS (
    SELECT FROM skills s
    WHERE s.workspace_id = %s AND s.id = %s
      AND (%s::integer IS NULL OR EXISTS (SELECT FROM skill_versions v WHERE v.skill_id = s.id AND v.version = %s))
)
"""
# A skill that follows the latest and has no version yet is left out.
_OF_SESSION = """
SELECT v.skill_id, v.version, v.frontmatter, v.manifest, b.sha256, b.generation
FROM session_skills u
JOIN skills s ON s.id = u.skill_id
JOIN skill_versions v ON v.skill_id = s.id AND v.version = coalesce(u.version, s.latest_version)
JOIN bundles b ON b.sha256 = v.bundle_sha256
WHERE u.session_id = %s ORDER BY u.position
"""
_WORKSPACE_OF = "SELECT workspace_id FROM skills WHERE id = %s"
# Pushes to one skill queue on its row; a number is only used up when its version is committed with it.
_NEXT_VERSION = """
UPDATE skills SET latest_version = latest_version + 1, revision = revision + 1 WHERE id = %s RETURNING latest_version
"""
_LOCK = "SELECT revision FROM skills WHERE id = %s FOR NO KEY UPDATE"
_ADD_VERSION = """
INSERT INTO skill_versions
    (id, skill_id, version, bundle_sha256, bundle_bytes, frontmatter, manifest, created_by)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
"""
_TOUCH_BUNDLE = """
INSERT INTO bundles (sha256, generation, bytes) VALUES (%s, %s, %s)
ON CONFLICT (sha256) DO UPDATE SET touched_at = clock_timestamp()
RETURNING generation
"""
_OLD_BUNDLES = """
SELECT b.sha256 FROM bundles b
WHERE b.touched_at < clock_timestamp() - make_interval(hours => %s)
  AND NOT EXISTS (SELECT FROM skill_versions v WHERE v.bundle_sha256 = b.sha256)
ORDER BY b.touched_at LIMIT %s
"""
# A push that found this row keeps it locked by its foreign key until it is committed.
_LOCK_OLD_BUNDLE = """
SELECT FROM bundles
WHERE sha256 = %s AND touched_at < clock_timestamp() - make_interval(hours => %s)
FOR UPDATE SKIP LOCKED
"""
_BUNDLE_IN_USE = "SELECT EXISTS (SELECT FROM skill_versions WHERE bundle_sha256 = %s)"
_CONDEMN_BUNDLE = """
WITH gone AS (DELETE FROM bundles WHERE sha256 = %s RETURNING sha256, generation)
INSERT INTO condemned_bundles (sha256, generation) SELECT sha256, generation FROM gone
"""
_CONDEMNED_BUNDLES = "SELECT sha256, generation FROM condemned_bundles LIMIT %s"
_FORGET_BUNDLE = "DELETE FROM condemned_bundles WHERE sha256 = %s AND generation = %s"


async def add(connection: Connection, skill_id: UUID, workspace_id: UUID, name: str, user_id: UUID) -> None:
    await connection.execute(_ADD, (skill_id, workspace_id, name, user_id))


async def workspace_of(connection: Connection, skill_id: UUID) -> UUID | None:
    row = await (await connection.execute(_WORKSPACE_OF, (skill_id,))).fetchone()
    return None if row is None else row[0]


async def is_usable(connection: Connection, workspace_id: UUID, skill_id: UUID, version: int | None) -> bool:
    row = await (await connection.execute(_USABLE, (workspace_id, skill_id, version, version))).fetchone()
    return row is not None and bool(row[0])


async def of_session(connection: Connection, session_id: UUID) -> list[UsableVersion]:
    rows = await (await connection.execute(_OF_SESSION, (session_id,))).fetchall()
    return [
        UsableVersion(
            skill_id, version, frontmatter, msgspec.convert(manifest, Manifest), Archive(sha256.hex(), generation)
        )
        for skill_id, version, frontmatter, manifest, sha256, generation in rows
    ]


async def lock(connection: Connection, skill_id: UUID) -> int:
    """Its revision, which stays as it is until the transaction ends."""
    row = await (await connection.execute(_LOCK, (skill_id,))).fetchone()
    assert row is not None
    revision: int = row[0]
    return revision


async def next_version(connection: Connection, skill_id: UUID) -> int:
    row = await (await connection.execute(_NEXT_VERSION, (skill_id,))).fetchone()
    assert row is not None
    number: int = row[0]
    return number


async def add_version(
    connection: Connection, version_id: UUID, skill_id: UUID, version: int, bundle: Bundle, user_id: UUID
) -> None:
    await connection.execute(
        _ADD_VERSION,
        (
            version_id,
            skill_id,
            version,
            bytes.fromhex(bundle.manifest.archive_sha256),
            bundle.bundle_bytes,
            msgspec.json.encode(bundle.frontmatter).decode(),
            msgspec.json.encode(bundle.manifest).decode(),
            user_id,
        ),
    )


async def touch_bundle(connection: Connection, sha256: bytes, generation: UUID, bytes_: int) -> UUID:
    """The generation under which the archive is, or is to be, stored: this one if there was none."""
    row = await (await connection.execute(_TOUCH_BUNDLE, (sha256, generation, bytes_))).fetchone()
    assert row is not None
    found: UUID = row[0]
    return found


async def old_bundles(connection: Connection, hours: int, count: int) -> list[bytes]:
    return [row[0] for row in await (await connection.execute(_OLD_BUNDLES, (hours, count))).fetchall()]


async def lock_unused_bundle(connection: Connection, sha256: bytes, hours: int) -> bool:
    """Whether the archive is still old and unused, now that nobody else can change that."""
    if (await connection.execute(_LOCK_OLD_BUNDLE, (sha256, hours))).rowcount != 1:
        return False
    # A statement of its own: it must see a version that was committed while the lock was waited for.
    row = await (await connection.execute(_BUNDLE_IN_USE, (sha256,))).fetchone()
    return row is not None and not row[0]


async def condemn_bundle(connection: Connection, sha256: bytes) -> None:
    await connection.execute(_CONDEMN_BUNDLE, (sha256,))


async def condemned_bundles(connection: Connection, count: int) -> list[tuple[bytes, UUID]]:
    return [(row[0], row[1]) for row in await (await connection.execute(_CONDEMNED_BUNDLES, (count,))).fetchall()]


async def forget_bundle(connection: Connection, sha256: bytes, generation: UUID) -> None:
    await connection.execute(_FORGET_BUNDLE, (sha256, generation))
