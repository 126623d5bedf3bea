"""Blocks: the content of all files of a bundle, cut into pieces that are compressed one by one.

A gzipped tar can only be unpacked from its start. In blocks, a part of a file costs as much as the blocks it lies in.
"""

import zlib
from typing import IO

from msgspec import Struct

from quarterdeck.skills.model import BundleError

BLOCK_BYTES = 256 * 1024
# Blocks are written once and read often, and exist to save time. This level also keeps zeros from taking disk space.
_LEVEL = 1


class BlockIndex(Struct, frozen=True, array_like=True):
    """Where the blocks and the files are. All lists are short compared with the manifest."""

    # Ends of the blocks in the stored object.
    ends: list[int]
    # CRC-32 of the content of each block.
    checksums: list[int]
    # Starts of the files in the content, in the order of the manifest.
    starts: list[int]
    content_bytes: int

    def span(self, block: int) -> tuple[int, int]:
        """Start and end of a block in the stored object."""
        return self.ends[block - 1] if block else 0, self.ends[block]


class BlockWriter:
    def __init__(self, target: IO[bytes]) -> None:
        self._target = target
        self._pending = bytearray()
        self._content_bytes = 0
        self._stored_bytes = 0
        self._ends: list[int] = []
        self._checksums: list[int] = []

    def write(self, piece: bytes) -> None:
        self._content_bytes += len(piece)
        self._pending += piece
        while len(self._pending) >= BLOCK_BYTES:
            self._write_block(bytes(self._pending[:BLOCK_BYTES]))
            del self._pending[:BLOCK_BYTES]

    def finish(self, starts: list[int]) -> BlockIndex:
        if self._pending:
            self._write_block(bytes(self._pending))
        return BlockIndex(self._ends, self._checksums, starts, self._content_bytes)

    def _write_block(self, content: bytes) -> None:
        self._stored_bytes += self._target.write(zlib.compress(content, _LEVEL))
        self._ends.append(self._stored_bytes)
        self._checksums.append(zlib.crc32(content))


def unpack_block(index: BlockIndex, block: int, stored: bytes) -> bytes:
    size = min(BLOCK_BYTES, index.content_bytes - block * BLOCK_BYTES)
    unpacking = zlib.decompressobj()
    try:
        # Never more than a block, whatever is stored.
        content = unpacking.decompress(stored, size + 1)
    except zlib.error as fault:
        raise _damaged() from fault
    if len(content) != size or not unpacking.eof or zlib.crc32(content) != index.checksums[block]:
        raise _damaged()
    return content


def _damaged() -> BundleError:
    return BundleError("a stored block is corrupt.")
