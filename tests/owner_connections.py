"""Connections with the rights of the database's owner, kept open between the statements of the tests. Opening one
takes more processor time than most statements."""

import select
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from psycopg import AsyncConnection

from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.db.database import connection_options

# The service's connection options, but with the rights of the owner.
AS_OWNER = f"{connection_options(DatabaseSettings(lock_wait_seconds=60, statement_seconds=80))} -c role=none"
# A test that runs many statements at once would leave too few connections to others.
_MAX_IDLE = 3
# By URL. Each connection is used by one caller at a time, so that it can serve the event loops of several tests.
_idle: defaultdict[str, "list[AsyncConnection[tuple[Any, ...]]]"] = defaultdict(list)


async def connect_as_owner(url: str) -> "AsyncConnection[tuple[Any, ...]]":
    # Tests change tables, after which a prepared statement may fail.
    return await AsyncConnection.connect(url, autocommit=True, options=AS_OWNER, prepare_threshold=None)


@asynccontextmanager
async def owner_connection(url: str) -> AsyncIterator["AsyncConnection[tuple[Any, ...]]"]:
    """For statements that leave nothing behind in their connection."""
    kept = _idle[url]
    connection = None
    while connection is None and kept:
        connection = kept.pop()
        if _is_ended(connection):
            connection.pgconn.finish()
            connection = None
    connection = connection or await connect_as_owner(url)
    try:
        yield connection
    except BaseException:
        connection.pgconn.finish()
        raise
    if len(kept) < _MAX_IDLE:
        kept.append(connection)
    else:
        connection.pgconn.finish()


def close_owner_connections(url: str | None = None) -> None:
    """All, or those to one database."""
    for given in [url] if url else list(_idle):
        for connection in _idle.pop(given, []):
            connection.pgconn.finish()


def _is_ended(connection: "AsyncConnection[tuple[Any, ...]]") -> bool:
    """The server sends nothing to an idle connection but the reason of its end."""
    waiting = select.poll()
    waiting.register(connection.pgconn.socket, select.POLLIN)
    return bool(waiting.poll(0))
