"""When each key, device and trusted job was last used: noted in memory and written in batches, not during requests."""

import time
from datetime import UTC, datetime
from uuid import UUID

from quarterdeck.db.database import Connection, Database

# Rows are locked in the order of their ids, so that two processes that flush the same keys cannot deadlock.
_FLUSH = {
    table: f"""
WITH used AS (
    SELECT k.id, u.at
    FROM unnest(%s::uuid[], %s::timestamptz[]) AS u (id, at)
    JOIN {table} k ON k.id = u.id
    ORDER BY k.id
    FOR NO KEY UPDATE OF k
)
UPDATE {table} k SET last_used_at = used.at
FROM used WHERE k.id = used.id AND (k.last_used_at IS NULL OR k.last_used_at < used.at)
"""  # noqa: S608  built from constants
    for table in ("api_keys", "devices", "trusted_jobs")
}


class LastUsed:
    def __init__(self) -> None:
        self._seconds: dict[UUID, float] = {}

    def note(self, credential_id: UUID) -> None:
        """Of a key, a device or a trusted job."""
        self._seconds[credential_id] = time.time()

    async def flush(self, database: Database) -> None:
        if not self._seconds:
            return
        noted, self._seconds = self._seconds, {}

        async def write(connection: Connection) -> None:
            times = [datetime.fromtimestamp(seconds, UTC) for seconds in noted.values()]
            for statement in _FLUSH.values():
                await connection.execute(statement, (list(noted), times))

        try:
            await database.transaction(write, repeatable=True)
        except BaseException:
            # Kept for the next flush. Times that were noted meanwhile are newer.
            self._seconds = noted | self._seconds
            raise
