"""When each key was last used: noted in memory and written in batches, not during requests."""

import time
from datetime import UTC, datetime
from uuid import UUID

from quarterdeck.db.database import Connection, Database

# Rows are locked in the order of their ids, so that two processes that flush the same keys cannot deadlock.
_FLUSH = """
WITH used AS (
    SELECT k.id, u.at
    FROM unnest(%s::uuid[], %s::timestamptz[]) AS u (id, at)
    JOIN api_keys k ON k.id = u.id
    ORDER BY k.id
    FOR NO KEY UPDATE OF k
)
UPDATE api_keys k SET last_used_at = used.at
FROM used WHERE k.id = used.id AND (k.last_used_at IS NULL OR k.last_used_at < used.at)
"""


class LastUsed:
    def __init__(self) -> None:
        self._seconds: dict[UUID, float] = {}

    def note(self, api_key_id: UUID) -> None:
        self._seconds[api_key_id] = time.time()

    async def flush(self, database: Database) -> None:
        if not self._seconds:
            return
        noted, self._seconds = self._seconds, {}

        async def write(connection: Connection) -> None:
            times = [datetime.fromtimestamp(seconds, UTC) for seconds in noted.values()]
            await connection.execute(_FLUSH, (list(noted), times))

        try:
            await database.transaction(write, repeatable=True)
        except BaseException:
            # Kept for the next flush. Times that were noted meanwhile are newer.
            self._seconds = noted | self._seconds
            raise
