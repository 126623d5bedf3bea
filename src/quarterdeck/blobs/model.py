"""Blobs: stored contents, named by their SHA-256."""

from typing import Protocol
from uuid import UUID

from msgspec import Struct

PIECE_BYTES = 64 * 1024


class Blob(Struct, frozen=True):
    # In hex.
    sha256: str
    # A blob that was deleted and is stored again gets a new one, so that a delayed deletion cannot reach it.
    generation: UUID


class StoredBlob(Struct, frozen=True):
    blob: Blob
    bytes: int


class Source(Protocol):
    """A file, a spool or a buffer. An empty result is the end."""

    def read(self, size: int, /) -> bytes: ...


class DamagedBlob(Exception):
    """The store has another content than the SHA-256 says."""
