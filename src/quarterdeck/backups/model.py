"""What a backup holds. `backup_file.py` describes the file."""

from collections.abc import Callable
from datetime import datetime

from msgspec import Struct

from quarterdeck.blobs.model import Blob

# Called with the bytes done and the total, which may be an estimate.
Progress = Callable[[int, int], None]


KEYS_FILE = "encryption.keys"


class BackupError(Exception):
    """One line that says what to do."""


class TableEntry(Struct, frozen=True):
    # With its schema: `app.users`.
    name: str
    columns: list[str]
    rows: int
    bytes: int
    sha256: str

    @property
    def file(self) -> str:
        return table_file(self.name)


class BlobEntry(Blob, frozen=True):
    bytes: int

    @property
    def file(self) -> str:
        return f"blobs/{self.sha256}.{self.generation.hex}"


class KeysEntry(Struct, frozen=True):
    bytes: int
    sha256: str

    @property
    def file(self) -> str:
        return KEYS_FILE


def table_file(name: str) -> str:
    return f"tables/{name}.copy"


class BackupManifest(Struct, frozen=True):
    # Raised when older releases could not read the file.
    format: int
    release: str
    created_at: datetime
    # Names and SHA-256.
    migrations: dict[str, str]
    tables: list[TableEntry]
    sequences: dict[str, int]
    blobs: list[BlobEntry]
    keys: KeysEntry | None = None

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)

    @property
    def entries(self) -> list[TableEntry | BlobEntry | KeysEntry]:
        return [*self.tables, *self.blobs, *([self.keys] if self.keys else [])]

    @property
    def bytes(self) -> int:
        """Uncompressed, of all entries."""
        return sum(entry.bytes for entry in self.entries)
