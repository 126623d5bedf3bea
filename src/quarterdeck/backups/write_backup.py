"""Writes a backup while the server runs: the tables in one snapshot, then the blobs that they refer to."""

from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from quarterdeck.backups.backup_file import FORMAT, BackupWriter, create_backup
from quarterdeck.backups.model import (
    KEYS_FILE,
    BackupError,
    BackupManifest,
    BlobEntry,
    KeysEntry,
    Progress,
    TableEntry,
    table_file,
)
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.core.errors import ServiceError
from quarterdeck.db import table_data
from quarterdeck.db.migrate import applied_migrations, check_known, may_migrate
from quarterdeck.db.roles import OwnConnection


def write_backup(url: str, path: Path, blobs: BlobStore, key_file: Path | None, progress: Progress) -> BackupManifest:
    """`key_file` holds the encryption keys; None leaves them out."""
    with create_backup(path) as writer, table_data.connect(url) as connection:
        check_owner(connection)
        if not applied_migrations(connection):
            raise BackupError("There is nothing to back up: the database is empty. Check QUARTERDECK_DATABASE_URL.")
        used = [BlobEntry(*row) for row in table_data.begin_snapshot(connection)]
        migrations = applied_migrations(connection)
        check_known(migrations, "the database")
        steps = _Steps(writer, connection, blobs, progress)
        tables = table_data.tables(connection)
        steps.expect(tables, used)
        entries = [steps.copy_table(table) for table in tables]
        manifest = BackupManifest(
            format=FORMAT,
            release=version("quarterdeck"),
            created_at=datetime.now(UTC),
            migrations=migrations,
            tables=entries,
            sequences=table_data.sequences(connection),
            blobs=[steps.copy_blob(blob) for blob in used],
            keys=_copy_keys(writer, key_file),
        )
        writer.finish(manifest)
        connection.rollback()
    return manifest


def check_owner(connection: OwnConnection) -> None:
    if not may_migrate(connection):
        raise BackupError("This login does not own the database. Set QUARTERDECK_DATABASE_OWNER_URL.")


class _Steps:
    def __init__(self, writer: BackupWriter, connection: OwnConnection, blobs: BlobStore, progress: Progress) -> None:
        self._writer = writer
        self._connection = connection
        self._blobs = blobs
        self._progress = progress
        self._done_bytes = 0
        # Estimated: COPY writes more or less than the table has on disk.
        self._left_bytes = 0

    def expect(self, tables: list[table_data.Table], blobs: list[BlobEntry]) -> None:
        self._left_bytes = sum(table.estimated_bytes for table in tables) + sum(blob.bytes for blob in blobs)

    def copy_table(self, table: table_data.Table) -> TableEntry:
        rows = self._counted(table_data.read_table(self._connection, table), table.estimated_bytes)
        written = self._writer.add(table_file(table.name), rows, compress=True)
        return TableEntry(table.name, table.columns, written.rows, written.bytes, written.sha256)

    def copy_blob(self, entry: BlobEntry) -> BlobEntry:
        try:
            pieces = self._counted(self._blobs.pieces(entry), entry.bytes)
            written = self._writer.add(entry.file, pieces, compress=False)
        except FileNotFoundError as fault:
            raise BackupError(
                f"The blob {entry.sha256} is missing in the blob store. Check QUARTERDECK_BLOB_STORE_URL or --data."
            ) from fault
        except ServiceError as fault:
            raise BackupError("The blob store is unavailable. Try again later.") from fault
        if (written.bytes, written.sha256) != (entry.bytes, entry.sha256):
            raise BackupError(f"The blob {entry.sha256} in the blob store is damaged.")
        return entry

    def _counted(self, pieces: Iterator[bytes], expected_bytes: int) -> Iterator[bytes]:
        self._left_bytes -= expected_bytes
        before = self._done_bytes
        for piece in pieces:
            self._done_bytes += len(piece)
            left = max(0, expected_bytes - (self._done_bytes - before))
            self._progress(self._done_bytes, self._done_bytes + left + self._left_bytes)
            yield piece


def _copy_keys(writer: BackupWriter, key_file: Path | None) -> KeysEntry | None:
    try:
        keys = key_file.read_bytes() if key_file else None
    except FileNotFoundError:
        # There is no secret to encrypt yet, or the keys are in a setting.
        keys = None
    if keys is None:
        return None
    written = writer.add(KEYS_FILE, [keys], compress=False)
    return KeysEntry(written.bytes, written.sha256)
