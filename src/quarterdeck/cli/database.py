"""How a command reaches the database: by its URL, or embedded in the data folder, started for the while if need be."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from psycopg import AsyncConnection

from quarterdeck.cli.output import note
from quarterdeck.db import embedded
from quarterdeck.db.database import Connection, connection_options
from quarterdeck.db.migrate import migrate
from quarterdeck.settings import Settings, with_database_url

if TYPE_CHECKING:
    from quarterdeck.sweep import Swept

T = TypeVar("T")


@contextmanager
def database_url(settings: Settings) -> Iterator[str]:
    if settings.database.url is not None:
        yield settings.database.url
        return
    if not settings.data_dir.exists():
        # Whoever is in the wrong folder should know.
        note(f"{settings.data_dir.absolute()} is not there: a new database is made in it.")
    with embedded.running(settings.data_dir) as url:
        yield url


def on_database(settings: Settings, work: Callable[[Connection], Awaitable[T]]) -> T:
    """Run `work` on a connection to the migrated database."""

    async def connected(url: str) -> T:
        options = connection_options(settings.database)
        async with await AsyncConnection.connect(url, autocommit=True, options=options) as connection:
            return await work(connection)

    with database_url(settings) as url:
        migrate(url)
        return asyncio.run(connected(url))


def sweep_now(settings: Settings) -> "Swept":
    # Here, not above: other commands need a connection and not all that an API process is made of.
    from quarterdeck.app import build_parts
    from quarterdeck.sweep import sweep

    async def work(url: str) -> "Swept":
        parts = build_parts(with_database_url(settings, url))
        await parts.database.open()
        try:
            return await sweep(parts)
        finally:
            await parts.database.close()

    with database_url(settings) as url:
        migrate(url)
        return asyncio.run(work(url))
