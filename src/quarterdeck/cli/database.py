"""How a command reaches the database: by its URL, or embedded in the data folder, started for the while if need be. As
its owner to migrate, as the role of the service for everything else."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from psycopg import AsyncConnection
from psycopg.conninfo import make_conninfo

from quarterdeck.cli.output import note
from quarterdeck.core.settings import Settings
from quarterdeck.db.database import Connection, Database, connection_options
from quarterdeck.db.migrate import migrate
from quarterdeck.db.roles import AppRole
from quarterdeck.server import embedded_postgres

if TYPE_CHECKING:
    from quarterdeck.retention import Deleted

T = TypeVar("T")


def app_role(settings: Settings) -> AppRole:
    return AppRole(settings.database.role, logs_in=settings.database.url is None)


def app_url(settings: Settings, owner_url: str) -> str:
    """For whatever serves. In the embedded server the role logs in by itself, so that it cannot become the owner."""
    return settings.database.url or make_conninfo(owner_url, user=settings.database.role)


@contextmanager
def owner_url(settings: Settings) -> Iterator[str]:
    if settings.database.url is not None:
        yield settings.database.owner_url or settings.database.url
        return
    if not settings.data_dir.exists():
        # Whoever is in the wrong folder should know.
        note(f"{settings.data_dir.absolute()} is not there: a new database is made in it.")
    with embedded_postgres.running(settings.data_dir) as url:
        yield url


@contextmanager
def migrated(settings: Settings) -> Iterator[str]:
    """The address at which the role of the service finds the database at this release's schema."""
    with owner_url(settings) as url:
        migrate(url, app_role(settings))
        yield app_url(settings, url)


def on_database(settings: Settings, work: Callable[[Connection], Awaitable[T]]) -> T:
    """Run `work` on a connection to the migrated database."""

    async def connected(url: str) -> T:
        options = connection_options(settings.database)
        async with await AsyncConnection.connect(url, autocommit=True, options=options) as connection:
            return await work(connection)

    with migrated(settings) as url:
        return asyncio.run(connected(url))


def sweep_now(settings: Settings) -> "Deleted":
    # Imported here because it is slow, and other commands do not need it.
    from quarterdeck.retention import delete_expired
    from quarterdeck.skills.bundle_store import open_bundle_store

    async def work(url: str) -> "Deleted":
        database = Database(url, settings.database)
        await database.open()
        try:
            return await delete_expired(
                database, open_bundle_store(settings.bundle.store_url, settings.data_dir), settings
            )
        finally:
            await database.close()

    with migrated(settings) as url:
        return asyncio.run(work(url))


def migrate_now(settings: Settings) -> list[str]:
    """Also writes down how long the audit log is kept, where it is told: other commands change nothing about that."""
    with owner_url(settings) as url:
        return migrate(url, app_role(settings), settings.audit)
