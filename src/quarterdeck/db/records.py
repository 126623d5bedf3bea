"""Rows as records: a column has the name of the field that it fills. Lists of records, read by pages.

The statements of a list are built once, when its module is loaded, and only from constants of that module.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec
from psycopg.rows import dict_row

from quarterdeck.core.ids import created_at
from quarterdeck.core.pages import bounds
from quarterdeck.core.versioned import VersionedState
from quarterdeck.db.database import Connection

T = TypeVar("T")
Row = dict[str, Any]
Values = Sequence[object] | Mapping[str, object]

# For a list of which archived records are a list of their own. The key says which.
ARCHIVED_FILTERS: Mapping[Hashable, str] = {False: "archived_at IS NULL", True: "archived_at IS NOT NULL"}


async def fetch_value(connection: Connection, query: str, values: Values = ()) -> Any | None:
    """The first column of the first row. None: there is no row, or the column is NULL."""
    row = await (await connection.execute(query, values)).fetchone()
    return None if row is None else row[0]


async def fetch_int(connection: Connection, query: str, values: Values = ()) -> int:
    value = await fetch_value(connection, query, values)
    assert isinstance(value, int)
    return value


async def fetch_bool(connection: Connection, query: str, values: Values = ()) -> bool:
    """False if there is no row."""
    return await fetch_value(connection, query, values) is True


async def fetch_column(connection: Connection, query: str, values: Values = ()) -> list[Any]:
    """The first column of all rows."""
    return [row[0] for row in await (await connection.execute(query, values)).fetchall()]


async def fetch_record(connection: Connection, kind: type[T], query: str, values: Values = ()) -> T | None:
    row = await (await connection.cursor(row_factory=dict_row).execute(query, values)).fetchone()
    return None if row is None else as_record(kind, row)


async def fetch_records(connection: Connection, kind: type[T], query: str, values: Values = ()) -> list[T]:
    return as_records(kind, await fetch_rows(connection, query, values))


async def fetch_rows(connection: Connection, query: str, values: Values = ()) -> list[Row]:
    return await (await connection.cursor(row_factory=dict_row).execute(query, values)).fetchall()


def as_record(kind: type[T], row: Row) -> T:
    return as_records(kind, [row])[0]


def as_records(kind: type[T], rows: list[Row]) -> list[T]:
    """Columns without a field are left out. `created_at` is part of the id."""
    if rows and "created_at" not in rows[0] and "created_at" in getattr(kind, "__struct_fields__", ()):
        for row in rows:
            row["created_at"] = created_at(row["id"])
    return msgspec.convert(rows, list[kind])  # type: ignore[valid-type]


class Pages(Generic[T]):
    """The records of a table that belong to one scope, such as a workspace. In `columns` and `joins`, `r` is the row of
    the table.

    A page selects its rows first; the joins then run for these rows only. The scope is part of the bounds and of the
    order, so that only an index that begins with it fits: with `workspace_id = …`, PostgreSQL searched the rows of all
    workspaces for the few of a small one. `filters` are further conditions, by a key that the caller of a page names.
    """

    def __init__(
        self,
        kind: type[T],
        *,
        table: str,
        columns: str,
        joins: str = "",
        scope: str = "workspace_id",
        get_scope: str | None = None,
        id_column: str = "id",
        filters: Mapping[Hashable, str] | None = None,
    ) -> None:
        self._kind = kind
        self.page_queries = {
            (key, newest_first): f"""
SELECT {columns}
FROM (
    SELECT * FROM {table} WHERE ({scope}, {id_column}) BETWEEN (%s, %s) AND (%s, %s) AND {condition}
    ORDER BY {scope} {order}, {id_column} {order} LIMIT %s
) AS r {joins}
ORDER BY r.{id_column} {order}
"""  # noqa: S608  built from constants
            for key, condition in (filters or {None: "true"}).items()
            for newest_first, order in ((True, "DESC"), (False, "ASC"))
        }
        self.get_query = f"""
SELECT {columns} FROM {table} AS r {joins} WHERE r.{get_scope or scope} = %s AND r.{id_column} = %s
"""  # noqa: S608  built from constants

    async def page(
        self,
        connection: Connection,
        scope_id: object,
        start: UUID,
        count: int | None,
        *values: object,
        filter_key: Hashable = None,
        newest_first: bool,
    ) -> list[T]:
        """`count` records from `start` on, itself included; all if `count` is None. `values`: those of the filter."""
        lowest, highest = bounds(start, newest_first=newest_first)
        query = self.page_queries[filter_key, newest_first]
        given = (scope_id, lowest, scope_id, highest, *values, count)
        return await fetch_records(connection, self._kind, query, given)


class Records(Pages[T]):
    """Pages, and single records by their id. `get_scope`: the column of their scope, if it is another."""

    async def get(self, connection: Connection, scope_id: UUID, record_id: UUID) -> T | None:
        return await fetch_record(connection, self._kind, self.get_query, (scope_id, record_id))


class VersionedRecords(Records[T]):
    """Objects with numbered versions: skills and agents. Names are unique among those that are not archived."""

    def __init__(self, kind: type[T], *, table: str, columns: str, joins: str) -> None:
        super().__init__(kind, table=table, columns=columns, joins=joins, filters=ARCHIVED_FILTERS)
        # For further statements, such as those that lock the row in another way.
        self.state_query = f"""
SELECT revision, name, latest_version, default_version, archived_at IS NOT NULL AS archived
FROM {table} WHERE workspace_id = %s AND id = %s
"""  # noqa: S608  built from constants
        self.lock_query = f"{self.state_query}FOR NO KEY UPDATE"
        self.add_query = f"INSERT INTO {table} (id, workspace_id, name, created_by) VALUES (%s, %s, %s, %s)"  # noqa: S608
        self.change_query = f"""
UPDATE {table}
SET name = %s, default_version = %s, revision = revision + 1,
    archived_at = CASE WHEN %s THEN coalesce(archived_at, clock_timestamp()) END
WHERE workspace_id = %s AND id = %s
"""  # noqa: S608  built from constants
        self.name_taken_query = f"""
SELECT EXISTS (SELECT FROM {table} WHERE workspace_id = %s AND name = %s AND archived_at IS NULL)
"""  # noqa: S608  built from constants

    async def add(self, connection: Connection, record_id: UUID, workspace_id: UUID, name: str, user_id: UUID) -> None:
        await connection.execute(self.add_query, (record_id, workspace_id, name, user_id))

    async def change(self, connection: Connection, workspace_id: UUID, record_id: UUID, new: VersionedState) -> None:
        values = (new.name, new.default_version, new.archived, workspace_id, record_id)
        await connection.execute(self.change_query, values)

    async def lock(self, connection: Connection, workspace_id: UUID, record_id: UUID) -> VersionedState | None:
        """Locks the object until the transaction ends. None: it was deleted."""
        return await fetch_record(connection, VersionedState, self.lock_query, (workspace_id, record_id))

    async def is_name_taken(self, connection: Connection, workspace_id: UUID, name: str) -> bool:
        """By an object that is not archived."""
        return await fetch_bool(connection, self.name_taken_query, (workspace_id, name))


class VersionPages(Generic[T]):
    """The versions of an object, by number: the order of ids depends on the clocks of several processes. As in `Pages`,
    `r` is the row of the table."""

    def __init__(self, kind: type[T], *, table: str, owner: str, columns: str, joins: str) -> None:
        self._kind = kind
        self.page_queries = {
            newest_first: f"""
SELECT {columns} FROM {table} AS r {joins}
WHERE r.{owner} = %s
  AND r.version {comparison} coalesce((SELECT version FROM {table} WHERE {owner} = %s AND id = %s), {first})
ORDER BY r.version {order} LIMIT %s
"""  # noqa: S608  built from constants
            for newest_first, comparison, first, order in ((True, "<=", 2**31 - 1, "DESC"), (False, ">=", 1, "ASC"))
        }

    async def page(
        self, connection: Connection, owner_id: UUID, start: UUID, count: int, *, newest_first: bool
    ) -> list[T]:
        """`count` versions from that with the id `start` on, itself included; from the first where there is none."""
        query = self.page_queries[newest_first]
        return await fetch_records(connection, self._kind, query, (owner_id, owner_id, start, count))
