"""What the commands for operators do: settings with the options of the command line, backups, moves of blobs. The
database is used by URL, or with the embedded PostgreSQL of the data folder, which is started if needed.
Migrations run as the owner, everything else as the application role."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

import msgspec
from psycopg import AsyncConnection

from quarterdeck.backups.backup_file import open_backup
from quarterdeck.backups.model import BackupError, BackupManifest
from quarterdeck.backups.restore_backup import Restore, check_backup
from quarterdeck.backups.write_backup import write_backup
from quarterdeck.blobs.blob_store import BlobStore, open_blob_store, open_fallback_store
from quarterdeck.blobs.move import Move, Moved, are_same
from quarterdeck.blobs.service import spool_folder
from quarterdeck.cli.errors import CliError
from quarterdeck.cli.output import note, progress_bar
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.secret_encryption import KEY_FILE
from quarterdeck.core.settings import PREFIX, ServerSettings, Settings, SettingsError, read_settings, variables
from quarterdeck.db.database import Connection, Database, connection_options
from quarterdeck.db.migrate import migrate, pending_changes
from quarterdeck.db.roles import AppRole, privileges
from quarterdeck.retention import Deleted, delete_expired
from quarterdeck.server import embedded_postgres
from quarterdeck.server.connections import embedded_max_connections

T = TypeVar("T")

UP_TO_DATE = "The schema is up to date."
# Used between our own processes, and by the tests.
_OTHER_VARIABLES = (f"{PREFIX}_LIFELINE_", f"{PREFIX}_TEST_")
# Set by `qd serve` for the processes that it starts. It has warned already.
_LIFELINE = "QUARTERDECK_LIFELINE_FD"


def server_settings(*, host: str | None = None, port: int | None = None, data: str | None = None) -> Settings:
    if _LIFELINE not in os.environ:
        _warn_about_unknown_variables()
    return with_server(read_settings(os.environ), host=host, port=port, data_dir=data)


def _warn_about_unknown_variables() -> None:
    for name, nearest in _unknown_variables(os.environ).items():
        hint = f"Did you mean {nearest}?" if nearest else "docs/run/configuration.md lists all settings."
        note(f"qd: warning: unknown variable {name}. {hint}")


def _unknown_variables(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Variables that look like settings and are none, each with the nearest name of a setting."""
    # Without the prefix, which would make all names similar.
    known = [name.removeprefix(PREFIX) for name in variables()]
    found = {name: name.removeprefix(PREFIX) for name in sorted(environ) if name.startswith(f"{PREFIX}_")}
    nearest = {
        name: get_close_matches(rest, known, n=1)
        for name, rest in found.items()
        if rest not in known and not name.startswith(_OTHER_VARIABLES)
    }
    return {name: PREFIX + matches[0] if matches else None for name, matches in nearest.items()}


def with_server(settings: Settings, **given: object) -> Settings:
    """The settings with options of the command line in place of values from the environment."""
    values = {name: value for name, value in given.items() if value is not None}
    try:
        server = msgspec.convert(msgspec.to_builtins(settings.server) | values, ServerSettings)
    except msgspec.ValidationError as fault:
        raise SettingsError(str(fault)) from None
    return msgspec.structs.replace(settings, server=server)


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
                " QUARTERDECK_DATABASE_URL, or create a database with `qd serve` or `qd migrate`."
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


def on_database(data: str | None, work: Callable[[Connection, Settings], Awaitable[T]]) -> T:
    """Run `work` on a connection to the migrated database. `data` is the data folder, if it was given."""
    settings = server_settings(data=data)

    async def connected(url: str) -> T:
        options = connection_options(settings.database)
        async with await AsyncConnection.connect(url, autocommit=True, options=options) as connection:
            return await work(connection, settings)

    with migrated(settings) as url:
        return asyncio.run(connected(url))


def delete_expired_now(settings: Settings) -> Deleted:
    async def work(url: str) -> Deleted:
        database = Database(url, settings.database)
        await database.open()
        try:
            return await delete_expired(
                database,
                open_blob_store(settings.blob, settings.data_dir),
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


def back_up(settings: Settings, file: Path, *, with_keys: bool) -> BackupManifest:
    # Keys in a setting are kept by whoever sets it.
    with_keys = with_keys and settings.encryption.keys is None
    key_file = settings.data_dir / KEY_FILE if with_keys else None
    with _errors(), owner_url(settings) as url, progress_bar("Backing up") as progress:
        blobs = open_blob_store(settings.blob, settings.data_dir)
        return write_backup(url, file, blobs, key_file, progress)


def restore(settings: Settings, file: Path) -> BackupManifest:
    with _errors(), open_backup(file) as reader:
        with progress_bar("Checking") as progress:
            check_backup(reader, progress)
        with owner_url(settings, create=True) as url, progress_bar("Restoring") as progress:
            blobs = open_blob_store(settings.blob, settings.data_dir)
            restoring = Restore(reader, blobs, settings.data_dir / KEY_FILE, spool_folder(settings.data_dir))
            return restoring.run(url, app_role(settings), settings.audit, progress)


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except BackupError as error:
        raise CliError(str(error)) from error


def move_blobs(settings: Settings, *, keep: bool, concurrency: int) -> Moved:
    if settings.blob.fallback_store_url is None:
        raise CliError(
            "Set QUARTERDECK_BLOB_FALLBACK_STORE_URL to the store to move from, for this command and the server."
        )
    new = open_blob_store(settings.blob, settings.data_dir)
    old = open_fallback_store(settings.blob.fallback_store_url)
    with migrated(settings) as url:
        try:
            return asyncio.run(_move(settings, url, old, new, keep=keep, concurrency=concurrency))
        except ServiceError as fault:
            reason = str(fault.__cause__ or fault.message).partition("\n")[0]
            raise CliError(
                f"A blob store or the database is unavailable. Run the command again to continue. {reason}"
            ) from fault


async def _move(settings: Settings, url: str, old: BlobStore, new: BlobStore, *, keep: bool, concurrency: int) -> Moved:
    spool = spool_folder(settings.data_dir)
    if await are_same(new, old, spool):
        raise CliError("QUARTERDECK_BLOB_STORE_URL and QUARTERDECK_BLOB_FALLBACK_STORE_URL name the same store.")
    database = Database(url, settings.database)
    await database.open()
    try:
        with progress_bar("Moving") as progress:
            return await Move(database, old, new, spool, keep=keep).run(concurrency, progress)
    finally:
        await database.close()
