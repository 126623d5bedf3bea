"""The bytes inside a gzip stream, a piece at a time, with every check that `gzip` itself leaves out.

Holds one piece of input and one of output, however large the archive says it is.
"""

import hashlib
import time
from collections.abc import Iterator
from typing import Protocol

from zlib_ng import zlib_ng

from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills.hashing import Sums
from quarterdeck.skills.model import BundleError

PIECE_BYTES = 64 * 1024

# What is inflated at a time: each call of zlib copies its 32 KiB of history, so that small pieces take a third longer.
INFLATED_BYTES = 256 * 1024

# Block compressors (bgzip) start a member every 64 KiB: 2,048 for the largest bundle. Each costs an inflate
# state, so 32 MiB of empty members would cost seconds.
MEMBERS = 4096

# What tar writes around the content of one entry at most: header, PAX header with its body, padding.
ENTRY_OVERHEAD_BYTES = 2048

_GZIP, _INFLATE_GZIP = b"\x1f\x8b", 31
_OTHERS = {
    b"PK": "a zip archive",
    b"\xfd7zXZ\x00": "an xz archive",
    b"BZh": "a bzip2 archive",
    b"\x28\xb5\x2f\xfd": "a zstd archive",
    b"7z\xbc\xaf": "a 7z archive",
}


class Source(Protocol):
    """What a file, a spool and a buffer have in common. An empty answer is the end."""

    def read(self, size: int, /) -> bytes: ...


class Gunzip:
    def __init__(self, source: Source, limits: BundleSettings, sums: Sums) -> None:
        self.archive_bytes = 0
        self._sha256 = hashlib.sha256()
        self._sums = sums
        self._source = source
        self._limits = limits
        self._left = limits.unpacked_bytes + limits.entries * ENTRY_OVERHEAD_BYTES
        # A deflate block can be eleven bytes, hold nothing and cost a microsecond of table building: 32 MiB of them
        # take four seconds, and mixed with a few literals no count of bytes tells them from honest data.
        self._deadline = time.thread_time() + limits.unpacking_seconds
        self._members = 1
        self._member = zlib_ng.decompressobj(_INFLATE_GZIP)
        self._input = self._read()
        self._piece, self._at = b"", 0
        # One byte of the two may be all that is there yet; zlib finds out about the other.
        if not self._input or not _GZIP.startswith(self._input[:2]):
            raise BundleError(f"the archive is not gzip: {_looks_like(self._input)}. Pack it with tar -czf.")

    def take(self, count: int) -> bytes:
        """`count` bytes, or fewer where the stream ends."""
        start, end = self._at, self._at + count
        if end <= len(self._piece):
            self._at = end
            return self._piece[start:end]
        return b"".join(self.pieces(count))

    def pieces(self, count: int | None = None) -> Iterator[bytes]:
        """The next `count` bytes, or all that is left, in pieces of at most INFLATED_BYTES."""
        while count is None or count > 0:
            if self._at == len(self._piece):
                self._piece, self._at = self._inflate(), 0
                if not self._piece:
                    return
            start = self._at
            self._at = len(self._piece) if count is None else min(start + count, len(self._piece))
            if count is not None:
                count -= self._at - start
            yield self._piece[start : self._at]

    def archive_sha256(self) -> str:
        """Of every byte up to the end of the source: asked for after the last piece, when the sums are finished."""
        return self._sha256.hexdigest()

    def _inflate(self) -> bytes:
        """The next piece; b"" after the last member, when its sum and length have been found right."""
        while not self._member.eof or self._next_member():
            if time.thread_time() > self._deadline:
                raise BundleError("the archive takes too much processor time to unpack. Pack it again with gzip.")
            data = self._input or self._read()
            try:
                piece = self._member.decompress(data, INFLATED_BYTES)
            except zlib_ng.error as fault:  # type: ignore[misc]  # its stubs take the class for an instance
                raise self._damaged(str(fault)) from fault
            self._input = self._member.unused_data or self._member.unconsumed_tail
            if piece:
                self._left -= len(piece)
                if self._left < 0:
                    raise BundleError(f"the archive unpacks to more than {self._limits.unpacked_bytes} bytes.")
                return piece
            # Without input zlib may still hand out what it holds: only nothing for nothing is the end.
            if not data and not self._member.eof:
                raise BundleError("the gzip data is truncated: it ends before its checksum.")
        return b""

    def _next_member(self) -> bool:
        """Whether the archive goes on. Writers that fill up a tape block leave zeros; all else is refused."""
        self._input = self._input or self._read()
        if not self._input:
            return False
        if self._input[0] == 0:
            while self._input:
                if self._input != bytes(len(self._input)):
                    raise _garbage()
                self._input = self._read()
            return False
        if self._input[0] != _GZIP[0]:
            raise _garbage()
        self._members += 1
        if self._members > MEMBERS:
            raise BundleError(f"the archive has more than {MEMBERS} gzip members.")
        self._member = zlib_ng.decompressobj(_INFLATE_GZIP)
        return True

    def _read(self) -> bytes:
        data = self._source.read(PIECE_BYTES)
        self.archive_bytes += len(data)
        # An upload is stopped earlier; this is for archives that come from elsewhere.
        if self.archive_bytes > self._limits.request_bytes:
            raise BundleError(f"the archive is larger than {self._limits.request_bytes} bytes.")
        self._sums.add(self._sha256, data)
        return data

    def _damaged(self, fault: str) -> BundleError:
        if "incorrect data check" in fault:
            return BundleError("the gzip data is damaged: its CRC is wrong.")
        if "incorrect length check" in fault:
            return BundleError("the gzip data is damaged: its length field is wrong.")
        if "incorrect header check" in fault and self._members > 1:
            return _garbage()
        return BundleError("the gzip data is damaged.")


def _garbage() -> BundleError:
    return BundleError("there is trailing garbage after the gzip data.")


def _looks_like(start: bytes) -> str:
    if not start:
        return "it is empty"
    if start[257:262] == b"ustar":
        return "it is a plain tar archive"
    return next((f"it is {name}" for magic, name in _OTHERS.items() if start.startswith(magic)), "it starts otherwise")
