"""All tables as data, for backups: read in one snapshot, and loaded into empty tables. Needs the owner's rights.

COPY in text format, which every version of PostgreSQL reads. The tables themselves are created by migrations.
"""

from collections.abc import Callable, Iterable, Iterator
from uuid import UUID

import psycopg
from msgspec import Struct
from psycopg import sql
from psycopg.errors import SerializationFailure

from quarterdeck.db.roles import OwnConnection

# Text formats do not depend on the server's settings, and no timeout ends a long copy.
_OPTIONS = (
    "-c search_path=app -c client_encoding=UTF8 -c datestyle=ISO -c timezone=UTC -c intervalstyle=postgres"
    " -c bytea_output=hex -c extra_float_digits=1"
    " -c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0"
)
_PIECE_BYTES = 256 * 1024
# Migrations are recorded when they are applied.
_NOT_COPIED = {"app.migrations"}
# Have rows in a database that was only migrated.
_DEFAULTS = {"app.migrations", "app.audit_retention"}
_DELETE_DEFAULTS = "DELETE FROM app.audit_retention"

_TABLES = """
SELECT n.nspname || '.' || c.relname, pg_table_size(c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'app' AND c.relkind = 'r' ORDER BY 1
"""
_COLUMNS = """
SELECT a.attname FROM pg_attribute a
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum
"""
_SEQUENCES = """
SELECT schemaname || '.' || sequencename, last_value FROM pg_sequences
WHERE schemaname = 'app' AND last_value IS NOT NULL ORDER BY 1
"""
_SET_SEQUENCE = "SELECT setval(%s::regclass, %s)"
_FOREIGN_KEYS = """
SELECT n.nspname || '.' || c.relname, k.conname, pg_get_constraintdef(k.oid)
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE k.contype = 'f' AND n.nspname = 'app' ORDER BY 1, 2
"""
# Retention skips locked rows, so it deletes none of these blobs during the backup. Pushes are not hindered.
_LOCK_BLOBS = """
SELECT b.sha256, b.generation, b.bytes FROM app.blobs b WHERE app.is_blob_used(b.sha256)
ORDER BY b.sha256 FOR KEY SHARE OF b
"""
# The background processes of PostgreSQL have no user.
_OTHER_CONNECTIONS = """
SELECT EXISTS (
    SELECT FROM pg_stat_activity a JOIN pg_database d ON d.oid = a.datid
    WHERE d.datname = current_database() AND a.pid <> pg_backend_pid() AND a.usesysid IS NOT NULL
)
"""


class Table(Struct, frozen=True):
    # With its schema: `app.users`.
    name: str
    estimated_bytes: int
    columns: list[str]


def connect(url: str) -> OwnConnection:
    return psycopg.connect(url, autocommit=True, options=_OPTIONS)


def begin_snapshot(connection: OwnConnection) -> list[tuple[str, UUID, int]]:
    """Starts the transaction in which everything is read, and returns SHA-256, generation and size of the blobs that
    are in use. They are kept until it ends."""
    tables = [table for table, _ in connection.execute(_TABLES).fetchall()]
    while True:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        # A migration that rewrites a table waits. Otherwise the table would look empty in this snapshot.
        names = sql.SQL(", ").join(map(_identifier, tables))
        connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(names))
        try:
            rows = connection.execute(_LOCK_BLOBS).fetchall()
        except SerializationFailure:
            # A push touched a row between the snapshot and the lock.
            connection.rollback()
            continue
        return [(sha256.hex(), generation, size) for sha256, generation, size in rows]


def tables(connection: OwnConnection) -> list[Table]:
    return [
        Table(name, size, [column for (column,) in connection.execute(_COLUMNS, (name,)).fetchall()])
        for name, size in connection.execute(_TABLES).fetchall()
        if name not in _NOT_COPIED
    ]


def sequences(connection: OwnConnection) -> dict[str, int]:
    """Last values. They are not part of a snapshot: read after its start, they are past every row of it."""
    return dict(connection.execute(_SEQUENCES).fetchall())


def read_table(connection: OwnConnection, table: Table) -> Iterator[bytes]:
    columns = sql.SQL(", ").join(map(sql.Identifier, table.columns))
    statement = sql.SQL("COPY {} ({}) TO STDOUT").format(_identifier(table.name), columns)
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        piece = bytearray()
        for row in copy:
            piece += row
            if len(piece) >= _PIECE_BYTES:
                yield bytes(piece)
                piece.clear()
        yield bytes(piece)


def first_table_with_rows(connection: OwnConnection) -> str | None:
    for name, _ in connection.execute(_TABLES).fetchall():
        if name in _DEFAULTS:
            continue
        if connection.execute(sql.SQL("SELECT FROM {} LIMIT 1").format(_identifier(name))).rowcount:
            return str(name)
    return None


def is_used_by_others(connection: OwnConnection) -> bool:
    return connection.execute(_OTHER_CONNECTIONS).fetchone() == (True,)


def load_tables(connection: OwnConnection, names: Iterable[str], load: Callable[[], None]) -> None:
    """Calls `load` without triggers and foreign keys, since some tables refer to each other. Creating the foreign keys
    again checks all rows. Needs a transaction."""
    foreign_keys = [(_identifier(table), sql.Identifier(name), definition)
                    for table, name, definition in connection.execute(_FOREIGN_KEYS).fetchall()]  # fmt: skip
    identifiers = [_identifier(name) for name in names]
    for table, name, _ in foreign_keys:
        connection.execute(sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(table, name))
    for table in identifiers:
        connection.execute(sql.SQL("ALTER TABLE {} DISABLE TRIGGER USER").format(table))
    connection.execute(_DELETE_DEFAULTS)
    load()
    for table in identifiers:
        connection.execute(sql.SQL("ALTER TABLE {} ENABLE TRIGGER USER").format(table))
    for table, name, definition in foreign_keys:
        added = sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} {}").format(table, name, sql.SQL(definition))
        connection.execute(added)


def write_table(connection: OwnConnection, name: str, columns: list[str], pieces: Iterable[bytes]) -> int:
    """Returns the number of rows."""
    listed = sql.SQL(", ").join(map(sql.Identifier, columns))
    with connection.cursor() as cursor:
        with cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(_identifier(name), listed)) as copy:
            for piece in pieces:
                copy.write(piece)
        return cursor.rowcount


def set_sequences(connection: OwnConnection, values: dict[str, int]) -> None:
    for name, value in values.items():
        connection.execute(_SET_SEQUENCE, (name, value))


def analyze(connection: OwnConnection, names: Iterable[str]) -> None:
    for name in names:
        connection.execute(sql.SQL("ANALYZE {}").format(_identifier(name)))


def _identifier(name: str) -> sql.Identifier:
    return sql.Identifier(*name.split("."))
