"""Database access for commands: by URL, or with the embedded PostgreSQL of the data folder, which is started if needed.
Migrations run as the owner, everything else as the application role."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from psycopg import AsyncConnection

from quarterdeck.cli.exit_codes import CliError, ExitCode
from quarterdeck.cli.output import note
from quarterdeck.core.settings import Settings
from quarterdeck.db.database import Connection, Database, connection_options
from quarterdeck.db.migrate import migrate, pending_changes
from quarterdeck.db.roles import AppRole, privileges
from quarterdeck.server import embedded_postgres
from quarterdeck.server.connections import embedded_max_connections

if TYPE_CHECKING:
    from quarterdeck.retention import Deleted

T = TypeVar("T")

UP_TO_DATE = "The schema is up to date."


def app_role(settings: Settings) -> AppRole:
    if settings.database.url is not None:
        return AppRole(settings.database.role)
    return AppRole(settings.database.role, embedded_postgres.app_password(settings.data_dir))


def app_url(settings: Settings) -> str:
    """The URL for API and workers. In the embedded PostgreSQL the application role logs in directly, so that it cannot
    switch to the owner."""
    return settings.database.url or embedded_postgres.app_url(settings.data_dir, settings.database.role)


def session_url(settings: Settings) -> str:
    """The same login at PostgreSQL itself, also if API and workers use a pooler."""
    return settings.database.session_url or app_url(settings)


@contextmanager
def owner_url(settings: Settings, *, create: bool = False) -> Iterator[str]:
    """Without `create`, a data folder that has no database is refused: the command may have been started in the wrong
    folder."""
    if settings.database.session_url is not None:
        yield settings.database.owner_url or settings.database.session_url
        return
    if not embedded_postgres.exists(settings.data_dir):
        if not create:
            raise CliError(
                f"No database in {settings.data_dir}. Choose the data folder with --data DIR, set"
                " QUARTERDECK_DATABASE_URL, or create a database with `qd serve` or `qd migrate`.",
                ExitCode.INVALID_INPUT,
            )
        note(f"Creating a new database in {settings.data_dir}.")
    with embedded_postgres.running(settings.data_dir, embedded_max_connections(settings)) as url:
        yield url


@contextmanager
def migrated(settings: Settings) -> Iterator[str]:
    """Migrates the database. Yields its URL for the application role."""
    with owner_url(settings) as url:
        migrate(url, app_role(settings))
        yield session_url(settings)


def on_database(settings: Settings, work: Callable[[Connection], Awaitable[T]]) -> T:
    """Run `work` on a connection to the migrated database."""

    async def connected(url: str) -> T:
        options = connection_options(settings.database)
        async with await AsyncConnection.connect(url, autocommit=True, options=options) as connection:
            return await work(connection)

    with migrated(settings) as url:
        return asyncio.run(connected(url))


def delete_expired_now(settings: Settings) -> "Deleted":
    from quarterdeck.blobs.blob_store import open_blob_store
    from quarterdeck.retention import delete_expired

    async def work(url: str) -> "Deleted":
        database = Database(url, settings.database)
        await database.open()
        try:
            return await delete_expired(
                database,
                open_blob_store(settings.bundle.store_url, settings.data_dir, settings.bundle.fallback_store_url),
                settings,
            )
        finally:
            await database.close()

    with migrated(settings) as url:
        return asyncio.run(work(url))


def migrate_now(settings: Settings) -> list[str]:
    """Also stores the retention of the audit log, if it is set. Other commands do not change it. Returns lines that say
    what was done."""
    with owner_url(settings, create=True) as url:
        role = app_role(settings)
        before = privileges(url, role)
        applied = migrate(url, role, settings.audit)
        after = privileges(url, role)
    lines = [f"Applied: {', '.join(applied)}" if applied else UP_TO_DATE]
    if added := len(after - before):
        # Without a migration they were missing, for example after a dump was restored without privileges.
        lines.append(f"{'Granted' if applied else 'Restored'} {added} privileges of the role {role.name}.")
    if removed := len(before - after):
        lines.append(f"Revoked {removed} privileges of the role {role.name} that this release does not need.")
    return lines


def pending_now(settings: Settings) -> list[str]:
    """What `migrate_now` would change. Changes nothing, not even a password file of the embedded PostgreSQL."""
    with owner_url(settings) as url:
        return pending_changes(url, AppRole(settings.database.role), settings.audit)
