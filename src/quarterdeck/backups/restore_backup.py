"""Restores a backup into an empty database: migrations up to the release of the backup, the data in one transaction,
then newer migrations. If loading fails, the database stays empty, and blobs and keys that were added are removed.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from quarterdeck.backups.backup_file import BackupReader
from quarterdeck.backups.model import BackupError, BackupManifest, BlobEntry, Progress, TableEntry
from quarterdeck.backups.write_backup import check_owner
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.service import open_spool
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.settings import AuditSettings
from quarterdeck.db import migrate, table_data
from quarterdeck.db.roles import AppRole, OwnConnection, prepare_role


class Restore:
    """`key_file` is where the encryption keys belong, `spool` a folder for temporary files."""

    def __init__(self, reader: BackupReader, blobs: BlobStore, key_file: Path, spool: Path) -> None:
        self._reader = reader
        self._blobs = blobs
        self._key_file = key_file
        self._spool = spool
        self._done_bytes = 0

    def run(self, url: str, role: AppRole, audit: AuditSettings, progress: Progress) -> BackupManifest:
        """The reader has been checked: see `check_backup`."""
        manifest = self._reader.manifest
        with table_data.connect(url) as connection, ExitStack() as if_it_fails:
            check_owner(connection)
            # Held to the end: a server that is started meanwhile waits, and then finds the restored data.
            migrate.lock_migrations(connection)
            _check_empty(connection, manifest)
            prepare_role(connection, role)
            # One transaction each: PostgreSQL does not let a transaction use a value that it added to an enum.
            migrate.apply_migrations(connection, manifest.migrations.keys())
            asyncio.run(self._put_blobs(if_it_fails, progress))
            self._add_keys(if_it_fails)
            try:
                with connection.transaction():
                    self._load(connection, progress)
            except BaseException:
                if connection.broken:
                    # The commit may have succeeded. A second attempt uses the blobs that are stored already.
                    if_it_fails.pop_all()
                raise
            if_it_fails.pop_all()
            # As after an upgrade. If a migration fails, `qd migrate` can be repeated.
            migrate.apply_migrations(connection)
            with connection.transaction():
                migrate.apply_functions_and_grants(connection, role, audit)
            table_data.analyze(connection, [table.name for table in manifest.tables])
        return manifest

    async def _put_blobs(self, if_it_fails: ExitStack, progress: Progress) -> None:
        for blob in self._reader.manifest.blobs:
            try:
                await self._put_blob(blob, if_it_fails, progress)
            except ServiceError as fault:
                raise BackupError("The blob store is unavailable. Nothing was restored; try again later.") from fault

    async def _put_blob(self, blob: BlobEntry, if_it_fails: ExitStack, progress: Progress) -> None:
        try:
            next(self._blobs.pieces(blob), None)
        except FileNotFoundError:
            if_it_fails.callback(self._delete_blob, blob)
        with open_spool(self._spool) as copy:
            for piece in self._counted(blob, progress):
                copy.write(piece)
            await self._blobs.put_all({blob: copy})

    def _delete_blob(self, blob: BlobEntry) -> None:
        # The error that ended the restore is reported, not this one.
        with suppress(Exception):
            asyncio.run(self._blobs.delete(blob))

    def _add_keys(self, if_it_fails: ExitStack) -> None:
        """Keys that the file has stay first: the first key encrypts, and every key decrypts."""
        if self._reader.manifest.keys is None:
            return
        present = self._key_file.read_text("ascii") if self._key_file.exists() else None
        known = present.split() if present else []
        added = b"".join(self._reader.read(self._reader.manifest.keys)).decode("ascii").split()
        _write_private(self._key_file, "".join(f"{key}\n" for key in dict.fromkeys([*known, *added])))
        if_it_fails.callback(_put_back(self._key_file, present))

    def _load(self, connection: OwnConnection, progress: Progress) -> None:
        tables = self._reader.manifest.tables
        existing = {table.name: set(table.columns) for table in table_data.tables(connection)}
        for table in tables:
            if not set(table.columns) <= existing.get(table.name, set()):
                raise BackupError(f"The backup has columns of {table.name} that the database does not have.")

        def load() -> None:
            for table in tables:
                rows = table_data.write_table(connection, table.name, table.columns, self._counted(table, progress))
                if rows != table.rows:
                    raise BackupError(f"{table.name} has {rows} rows after loading instead of {table.rows}.")

        table_data.load_tables(connection, [table.name for table in tables], load)
        table_data.set_sequences(connection, self._reader.manifest.sequences)

    def _counted(self, entry: TableEntry | BlobEntry, progress: Progress) -> Iterator[bytes]:
        for piece in self._reader.read(entry):
            self._done_bytes += len(piece)
            progress(self._done_bytes, self._reader.manifest.bytes)
            yield piece


def check_backup(reader: BackupReader, progress: Progress) -> None:
    """Before anything is created or changed."""
    migrate.check_known(reader.manifest.migrations, "the backup's database")
    reader.check(progress)


def _check_empty(connection: OwnConnection, manifest: BackupManifest) -> None:
    if table := table_data.first_table_with_rows(connection):
        raise BackupError(
            f"The database is not empty: {table} has rows. Restore into a new data folder (--data DIR) or a new"
            " database."
        )
    if migrate.applied_migrations(connection).keys() - manifest.migrations.keys():
        raise BackupError("The database was migrated by a newer release than the backup. Create a new, empty database.")
    if table_data.is_used_by_others(connection):
        raise BackupError("Other programs are connected to the database. Stop the server and try again.")


def _write_private(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.restored")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)


def _put_back(path: Path, text: str | None) -> Callable[[], None]:
    return path.unlink if text is None else lambda: _write_private(path, text)
