"""Deletes the expired rows of a table, from the oldest on, where each workspace has its own retention."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from msgspec import Struct

from quarterdeck.db.database import Connection, Database
from quarterdeck.db.records import Values

Place = TypeVar("Place", UUID, datetime)


class Step(Struct, frozen=True):
    """The result of one batch: rows that another workspace keeps longer are read and not deleted."""

    deleted: int
    read: int
    # Where the next batch begins. None: no row was read.
    next_place: UUID | datetime | None


async def fetch_step(connection: Connection, query: str, values: Values) -> Step:
    """`query` returns the three columns of a step."""
    row = await (await connection.execute(query, values)).fetchone()
    assert row is not None
    return Step(*row)


async def walk(
    database: Database, delete: Callable[[Connection, Place], Awaitable[Step]], first: Place, batch: int
) -> int:
    """Each batch is a transaction of its own, so that no lock is held for long. Returns the number of deleted rows."""

    async def delete_from(place: Place) -> Step:
        async def work(connection: Connection) -> Step:
            return await delete(connection, place)

        return await database.transaction(work, repeatable=True)

    deleted = 0
    place = first
    while True:
        step = await delete_from(place)
        deleted += step.deleted
        if step.read < batch:
            return deleted
        assert isinstance(step.next_place, type(first)), "a full batch has a last row"
        place = step.next_place
