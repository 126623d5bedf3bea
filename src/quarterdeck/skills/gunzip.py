"""Decompresses a gzip stream piece by piece, with checks that Python's `gzip` leaves out.

Memory use is one piece of input and one of output, however large the archive is.
"""

import hashlib
import time
import zlib
from collections.abc import Iterator

from quarterdeck.blobs.model import PIECE_BYTES, Source
from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills.model import BundleError

# Largest piece of output. Each call of zlib copies its 32 KiB of history, so small pieces take a third longer.
INFLATED_BYTES = 256 * 1024

# Block compressors (bgzip) start a member every 64 KiB: 2,048 for the largest bundle. Each member needs a new inflate
# state, so 32 MiB of empty members would take seconds.
MEMBERS = 4096

# Upper bound of what tar writes around the content of one entry: header, PAX header with its body, padding.
ENTRY_OVERHEAD_BYTES = 2048

_GZIP, _INFLATE_GZIP = b"\x1f\x8b", 31
_OTHERS = {
    b"PK": "zip",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"7z\xbc\xaf": "7z",
}


class Gunzip:
    def __init__(self, source: Source, limits: BundleSettings) -> None:
        self.archive_bytes = 0
        self._sha256 = hashlib.sha256()
        self._source = source
        self._limits = limits
        self._left = limits.unpacked_bytes + limits.entries * ENTRY_OVERHEAD_BYTES
        # Processor time. A deflate block can be eleven bytes, hold nothing and cost a microsecond of table building:
        # 32 MiB of them take four seconds, and no count of bytes distinguishes them from honest data.
        self._seconds_left = limits.unpacking_seconds
        self._members = 1
        self._member = zlib.decompressobj(_INFLATE_GZIP)
        self._input = self._read()
        self._piece, self._at = b"", 0
        # The source may have returned only the first byte. zlib checks the second.
        if not self._input or not _GZIP.startswith(self._input[:2]):
            raise BundleError(f"not a gzip archive{_found(self._input)}. Pack it with tar -czf.")

    def take(self, count: int) -> bytes:
        """`count` bytes, or fewer where the stream ends."""
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
        """Of all bytes that were read. Call it after the last piece."""
        return self._sha256.hexdigest()

    def _inflate(self) -> bytes:
        """The next piece; b"" after the last member, once its checksum and length are verified."""
        while not self._member.eof or self._next_member():
            data = self._input or self._read()
            start = time.thread_time()
            try:
                piece = self._member.decompress(data, INFLATED_BYTES)
            except zlib.error as fault:
                raise self._damaged(str(fault)) from fault
            self._seconds_left -= time.thread_time() - start
            if self._seconds_left < 0:
                raise BundleError("the archive takes too much processor time to unpack. Pack it again with gzip.")
            self._input = self._member.unused_data or self._member.unconsumed_tail
            if piece:
                self._left -= len(piece)
                if self._left < 0:
                    raise BundleError(f"the archive unpacks to more than {self._limits.unpacked_bytes} bytes.")
                return piece
            # Without input zlib may still return buffered output. Only no output for no input is the end.
            if not data and not self._member.eof:
                raise BundleError("the gzip data is truncated.")
        return b""

    def _next_member(self) -> bool:
        """Whether another member follows. Zeros are allowed at the end (tape blocks), everything else is refused."""
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
        self._member = zlib.decompressobj(_INFLATE_GZIP)
        return True

    def _read(self) -> bytes:
        data = self._source.read(PIECE_BYTES)
        self.archive_bytes += len(data)
        # Uploads are stopped earlier. This is for archives from elsewhere.
        if self.archive_bytes > self._limits.request_bytes:
            raise BundleError(f"the archive is larger than {self._limits.request_bytes} bytes.")
        self._sha256.update(data)
        return data

    def _damaged(self, fault: str) -> BundleError:
        if "incorrect data check" in fault:
            return BundleError("the gzip data is corrupt (CRC mismatch).")
        if "incorrect length check" in fault:
            return BundleError("the gzip data is corrupt (length mismatch).")
        if "incorrect header check" in fault and self._members > 1:
            return _garbage()
        return BundleError("the gzip data is corrupt.")


def _garbage() -> BundleError:
    return BundleError("unexpected data after the end of the gzip data.")


def _found(start: bytes) -> str:
    if not start:
        return " (empty)"
    if start[257:262] == b"ustar":
        return " (found plain tar)"
    return next((f" (found {name})" for magic, name in _OTHERS.items() if start.startswith(magic)), "")
