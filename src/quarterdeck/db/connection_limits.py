"""How many connections PostgreSQL allows, and whether the database can be used."""

from typing import Any

import psycopg
from msgspec import Struct

from quarterdeck.db.pool import KEEPALIVE

_LIMITS = """
SELECT pg_backend_pid(), current_setting('max_connections')::int,
       current_setting('superuser_reserved_connections')::int
           + coalesce(current_setting('reserved_connections', true)::int, 0),
       r.rolconnlimit, d.datconnlimit,
       (SELECT sum(numbackends)::int - 1 FROM pg_stat_database),
       (SELECT count(*)::int - 1 FROM pg_stat_activity a WHERE a.usesysid = r.oid),
       (SELECT numbackends - 1 FROM pg_stat_database s WHERE s.datid = d.oid)
FROM pg_roles r, pg_database d WHERE r.rolname = session_user AND d.datname = current_database()
"""


class ConnectionLimits(Struct, frozen=True):
    # A pooler answers with the number of a process that is not the one of the connection.
    has_pooler: bool
    max_connections: int
    reserved: int
    # -1: no limit.
    of_login: int
    of_database: int
    # Connections of other programs: all, those of the same login, and those to the same database.
    others: int
    others_of_login: int
    others_of_database: int
    # A message if the database has another encoding than UTF-8.
    encoding_error: str | None


def read_connection_limits(url: str) -> ConnectionLimits:
    with psycopg.connect(url, autocommit=True, **KEEPALIVE) as connection:  # type: ignore[arg-type]
        row = connection.execute(_LIMITS).fetchone()
        assert row is not None
        backend_pid, *counts = row
        return ConnectionLimits(*(backend_pid != connection.info.backend_pid, *counts, encoding_error(connection)))


def encoding_error(connection: psycopg.Connection[Any]) -> str | None:
    """A line that says what to do, if the encoding is not UTF-8: text would be lost, or returned as bytes."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding == "UTF8":
        return None
    return (
        f"the encoding of the database is {encoding} and must be UTF8: create another database, for example with "
        "`createdb --encoding=UTF8 --template=template0 NAME`"
    )
