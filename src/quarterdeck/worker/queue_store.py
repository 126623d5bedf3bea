"""SQL of the job queue, as a worker uses it."""

from collections.abc import Collection
from uuid import UUID

from msgspec import Struct

from quarterdeck.db.database import Connection

_LISTEN = "LISTEN quarterdeck_jobs"
_LISTEN_READERS = "LISTEN quarterdeck_readers"
READERS = "quarterdeck_readers"
_SYNCHRONIZE = "SELECT * FROM synchronize_worker(%s, %s, %s, %s, %s)"
_UNREGISTER = "DELETE FROM workers WHERE id = %s"


class Job(Struct, frozen=True):
    id: int
    run_id: UUID
    # The run was cancelled.
    cancelled: bool
    waited_seconds: float


async def listen(connection: Connection) -> None:
    await connection.execute(_LISTEN)
    await connection.execute(_LISTEN_READERS)


async def synchronize(
    connection: Connection, worker_id: UUID, lease_seconds: float, slots: int, count: int, done: Collection[int]
) -> list[Job]:
    """Sends a heartbeat if one is due, deletes the jobs that are done and takes up to `count` others. Returns all that
    the worker has now."""
    values = (worker_id, lease_seconds, slots, count, list(done))
    return [Job(*row) for row in await (await connection.execute(_SYNCHRONIZE, values)).fetchall()]


async def unregister(connection: Connection, worker_id: UUID) -> None:
    """Jobs that the worker still has count as lost."""
    await connection.execute(_UNREGISTER, (worker_id,))
