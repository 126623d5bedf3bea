"""Rows of uploaded files."""

from uuid import UUID

from quarterdeck.blobs.model import Blob
from quarterdeck.db.database import Connection
from quarterdeck.db.records import as_record, fetch_rows
from quarterdeck.db.walks import BatchResult, fetch_step
from quarterdeck.files.model import FileBody, Upload, UploadedFile

_ADD = """
INSERT INTO files (id, workspace_id, name, media_type, sha256, bytes, created_by) VALUES (%s, %s, %s, %s, %s, %s, %s)
"""
_GET = """
SELECT f.id, f.workspace_id, f.name, f.media_type, encode(f.sha256, 'hex') AS sha256, f.bytes, b.generation,
       actor(u) AS created_by
FROM files f JOIN blobs b ON b.sha256 = f.sha256 JOIN users u ON u.id = f.created_by
WHERE f.workspace_id = %s AND f.id = %s
"""
_DELETE = "DELETE FROM files WHERE workspace_id = %s AND id = %s"
# A file that is being attached is locked, and skipped. A retention of NULL keeps the file.
_DELETE_OLD = """
WITH old AS (
    SELECT f.id, f.id < lowest_id_at(
        now() - make_interval(days => coalesce((w.retention->>'file_days')::integer, %s::integer))
    ) AS is_expired
    FROM files f JOIN workspaces w ON w.id = f.workspace_id
    WHERE f.id > %s AND f.id < lowest_id_at(now() - make_interval(days => %s))
    ORDER BY f.id LIMIT %s
), gone AS (
    DELETE FROM files WHERE id = ANY (ARRAY(
        SELECT id FROM files WHERE id = ANY (ARRAY(SELECT id FROM old WHERE is_expired)) FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
)
SELECT (SELECT count(*) FROM gone), count(*), (SELECT id FROM old ORDER BY id DESC LIMIT 1) FROM old
"""


async def add(connection: Connection, file_id: UUID, workspace_id: UUID, upload: Upload, user_id: UUID) -> None:
    sha256 = bytes.fromhex(upload.sha256)
    values = (file_id, workspace_id, upload.name, upload.media_type, sha256, upload.bytes, user_id)
    await connection.execute(_ADD, values)


async def get(connection: Connection, workspace_id: UUID, file_id: UUID) -> UploadedFile | None:
    rows = await fetch_rows(connection, _GET, (workspace_id, file_id))
    if not rows:
        return None
    body = as_record(FileBody, rows[0])
    return UploadedFile(body, Blob(body.sha256, rows[0]["generation"]))


async def delete(connection: Connection, workspace_id: UUID, file_id: UUID) -> bool:
    """False: it was deleted before. The sweep deletes the content unless another row refers to it."""
    return (await connection.execute(_DELETE, (workspace_id, file_id))).rowcount == 1


async def delete_old(
    connection: Connection, after: UUID, days: int | None, shortest_days: int, batch: int
) -> BatchResult:
    """A batch of those after `after`. `days`: the retention of the server. `shortest_days`: of all workspaces."""
    return await fetch_step(connection, _DELETE_OLD, (days, after, shortest_days, batch))
