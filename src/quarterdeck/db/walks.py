"""Deletes the expired rows of a table, from the oldest on, where each workspace has its own retention."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from msgspec import Struct

from quarterdeck.db.database import Connection, Database
from quarterdeck.db.records import Values

Start = TypeVar("Start", UUID, datetime)


class BatchResult(Struct, frozen=True):
    """The result of one batch: rows that another workspace keeps longer are read and not deleted."""

    deleted: int
    read: int
    # Where the next batch begins. None: no row was read.
    next_start: UUID | datetime | None


async def fetch_step(connection: Connection, query: str, values: Values) -> BatchResult:
    """`query` returns the three columns of a step."""
    row = await (await connection.execute(query, values)).fetchone()
    assert row is not None
    return BatchResult(*row)


async def walk(
    database: Database, delete: Callable[[Connection, Start], Awaitable[BatchResult]], first: Start, batch: int
) -> int:
    """Each batch is a transaction of its own, so that no lock is held for long. Returns the number of deleted rows."""
    deleted = 0
    start = first
    while True:
        step = await database.transaction(delete, start, repeatable=True)
        deleted += step.deleted
        if step.read < batch:
            return deleted
        assert isinstance(step.next_start, type(first)), "a full batch has a last row"
        start = step.next_start
