"""SQL for the files of sessions. Writers hold the lock of the session (`events.log.lock_session`)."""

from collections.abc import Iterable, Sequence
from uuid import UUID

import msgspec

from quarterdeck.db.database import Connection
from quarterdeck.db.records import fetch_column, fetch_record, fetch_records, fetch_value
from quarterdeck.sandbox.manifest import FileKind, Manifest, ManifestFile, StoredFile
from quarterdeck.session_files.model import SessionFileBody

# Files of one statement: a tenth of a second of work, so that a busy server does not exceed the statement timeout.
_WRITE_BATCH = 2_000
# JSON texts instead of arrays: psycopg takes a second to write arrays of 20,000 values.
_DELETE = """
DELETE FROM session_files WHERE session_id = %s AND path = ANY (ARRAY(SELECT json_array_elements_text(%s::json)))
RETURNING kind
"""
_WRITE = """
INSERT INTO session_files (session_id, path, kind, sha256, bytes, mode, target, modified_at)
SELECT %s, w.path, w.kind, decode(w.sha256, 'hex'), w.bytes, w.mode, w.target, w.modified_at
FROM json_to_recordset(%s::json) AS w (
    path text, kind text, sha256 text, bytes bigint, mode smallint, target text, modified_at timestamptz
)
ON CONFLICT (session_id, path) DO UPDATE SET kind = excluded.kind, sha256 = excluded.sha256, bytes = excluded.bytes,
    mode = excluded.mode, target = excluded.target, modified_at = excluded.modified_at
"""
# `0` follows `/` in the collation of paths. A subquery with LIMIT, because it cannot become a join, which may compare
# every path with every other: it is one search in the primary key for each path.
_FOLDERS = """
SELECT w.path FROM json_array_elements_text(%s::json) AS w (path)
WHERE (
    SELECT b.kind FROM session_files b
    WHERE b.session_id = %s AND b.path > w.path || '/' AND b.path < w.path || '0' ORDER BY b.path LIMIT 1
) IS NOT NULL
"""
_DELETE_ALL = "DELETE FROM session_files WHERE session_id = %s"
_NEXT_REVISION = "UPDATE sessions SET files_revision = files_revision + 1 WHERE id = %s RETURNING files_revision"
_REVISION = "SELECT files_revision FROM sessions WHERE id = %s"
_REVISIONS = "SELECT id, files_revision FROM sessions WHERE id = ANY (%s)"
# One statement: the files are those of the revision. As JSON: the rows of 20,000 files would block the event loop.
_MANIFEST = """
SELECT s.files_revision, (
    SELECT coalesce(json_agg(json_build_object(
        'path', f.path, 'kind', f.kind, 'sha256', encode(f.sha256, 'hex'), 'bytes', f.bytes, 'mode', f.mode,
        'target', f.target, 'modified_at', f.modified_at, 'generation', b.generation) ORDER BY f.path), '[]')::text
    FROM session_files f LEFT JOIN blobs b ON b.sha256 = f.sha256 WHERE f.session_id = s.id
)
FROM sessions s WHERE s.id = %s
"""
# The second bound of `path` keeps the search from starting before the prefix.
_PAGE = """
SELECT path, kind, encode(sha256, 'hex') AS sha256, bytes, mode, target, modified_at FROM session_files
WHERE session_id = %s AND path > %s AND path >= %s AND starts_with(path, %s) ORDER BY path LIMIT %s
"""
_GET = """
SELECT f.path, f.kind, encode(f.sha256, 'hex') AS sha256, f.bytes, f.mode, f.target, f.modified_at, b.generation
FROM session_files f LEFT JOIN blobs b ON b.sha256 = f.sha256 WHERE f.session_id = %s AND f.path = %s
"""
_LINKS = "SELECT path, target FROM session_files WHERE session_id = %s AND kind = 'link'"
_TITLE = "SELECT title FROM sessions WHERE id = %s"
_COPY_FILES = """
INSERT INTO session_files (session_id, path, kind, sha256, bytes, mode, target, modified_at)
SELECT %s, path, kind, sha256, bytes, mode, target, modified_at FROM session_files WHERE session_id = %s
"""
_COPY_ATTACHMENTS = """
INSERT INTO session_attachments (session_id, sha256) SELECT %s, sha256 FROM session_attachments WHERE session_id = %s
"""
_KEEP_CONTENTS = """
INSERT INTO session_attachments (session_id, sha256) SELECT %s, decode(sha256, 'hex') FROM unnest(%s::text[]) AS sha256
ON CONFLICT DO NOTHING
"""
# By ctid: with IN (SELECT …), PostgreSQL may read the whole table to join it.
_PURGE_FILES = """
DELETE FROM session_files
WHERE ctid = ANY (ARRAY(SELECT ctid FROM session_files WHERE session_id = %s ORDER BY path LIMIT %s))
"""
_PURGE_ATTACHMENTS = """
DELETE FROM session_attachments
WHERE ctid = ANY (ARRAY(SELECT ctid FROM session_attachments WHERE session_id = %s ORDER BY sha256 LIMIT %s))
"""


async def delete(connection: Connection, session_id: UUID, paths: Iterable[str]) -> set[FileKind]:
    """Returns the kinds of what was deleted."""
    return set(map(FileKind, await fetch_column(connection, _DELETE, (session_id, _json(list(paths))))))


async def delete_all(connection: Connection, session_id: UUID) -> int:
    return (await connection.execute(_DELETE_ALL, (session_id,))).rowcount


async def write(connection: Connection, session_id: UUID, files: Sequence[StoredFile]) -> None:
    for start in range(0, len(files), _WRITE_BATCH):
        await connection.execute(_WRITE, (session_id, _json(files[start : start + _WRITE_BATCH])))


async def folders(connection: Connection, session_id: UUID, paths: Sequence[str]) -> list[str]:
    """Those of the paths that have rows below them."""
    return await fetch_column(connection, _FOLDERS, (_json(paths), session_id))


async def next_revision(connection: Connection, session_id: UUID) -> int | None:
    return await fetch_value(connection, _NEXT_REVISION, (session_id,))


async def revision(connection: Connection, session_id: UUID) -> int | None:
    """None: the session was deleted."""
    return await fetch_value(connection, _REVISION, (session_id,))


async def revisions(connection: Connection, session_ids: Sequence[UUID]) -> dict[UUID, int]:
    """Without those of deleted sessions."""
    return dict(await (await connection.execute(_REVISIONS, (list(session_ids),))).fetchall())


async def manifest(connection: Connection, session_id: UUID) -> Manifest | None:
    """One snapshot of all files. None: the session was deleted."""
    row = await (await connection.execute(_MANIFEST, (session_id,))).fetchone()
    return None if row is None else Manifest(row[0], msgspec.json.decode(row[1], type=list[ManifestFile]))


async def page(connection: Connection, session_id: UUID, after: str, prefix: str, count: int) -> list[SessionFileBody]:
    return await fetch_records(connection, SessionFileBody, _PAGE, (session_id, after, prefix, prefix, count))


async def get(connection: Connection, session_id: UUID, path: str) -> ManifestFile | None:
    return await fetch_record(connection, ManifestFile, _GET, (session_id, path))


async def links(connection: Connection, session_id: UUID) -> dict[str, str]:
    """Their targets, by path."""
    return dict(await (await connection.execute(_LINKS, (session_id,))).fetchall())


async def title(connection: Connection, session_id: UUID) -> str | None:
    return await fetch_value(connection, _TITLE, (session_id,))


async def copy_rows(connection: Connection, from_session: UUID, to_session: UUID) -> int:
    """Returns the number of files."""
    files = (await connection.execute(_COPY_FILES, (to_session, from_session))).rowcount
    await connection.execute(_COPY_ATTACHMENTS, (to_session, from_session))
    return files


async def keep_contents(connection: Connection, session_id: UUID, sha256s: Sequence[str]) -> None:
    """For contents that an event of the session names, besides its files. They are in the store."""
    await connection.execute(_KEEP_CONTENTS, (session_id, list(sha256s)))


async def purge(connection: Connection, session_id: UUID, batch: int) -> int:
    """Deletes a batch of the files and attachments of a deleted session. `batch` is returned while some may be left."""
    files = (await connection.execute(_PURGE_FILES, (session_id, batch))).rowcount
    attachments = (await connection.execute(_PURGE_ATTACHMENTS, (session_id, batch))).rowcount
    return max(files, attachments)


def _json(value: Sequence[str] | Sequence[StoredFile]) -> str:
    return msgspec.json.encode(value).decode()
