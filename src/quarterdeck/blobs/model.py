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


def sha256_range(first_byte: int) -> tuple[bytes, bytes]:
    """The first and the last SHA-256 with this first byte."""
    return bytes([first_byte]) + bytes(31), bytes([first_byte]) + b"\xff" * 31
