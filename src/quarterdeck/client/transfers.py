"""Archives on their way: sent from a file in pieces, and received into one."""

import hashlib
import io
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from quarterdeck.client.errors import ConnectionFailed

# Called with the bytes that were sent or received so far, and with those that there are.
Progress = Callable[[int, int], None]
Source = bytes | BinaryIO
Sink = str | os.PathLike[str] | BinaryIO

_PIECE_BYTES = 64 * 1024
# What is larger goes to the disk.
SPOOL_BYTES = 8 * 1024 * 1024
_SHA256_TAG = re.compile(r'"([0-9a-f]{64})"')


class Upload:
    """From where a file stands now. It is read anew for every try, so what cannot be wound back is kept first."""

    def __init__(self, source: Source, progress: Progress | None = None) -> None:
        self._kept: BinaryIO | None = None
        if isinstance(source, bytes):
            self._file: BinaryIO = io.BytesIO(source)
        elif source.seekable():
            self._file = source
        else:
            self._file = self._kept = spool()
            shutil.copyfileobj(source, self._kept)
            self._kept.seek(0)
        self._start = self._file.tell()
        self.total = self._file.seek(0, os.SEEK_END) - self._start
        self._progress = progress

    def close(self) -> None:
        """Only what is its own."""
        if self._kept is not None:
            self._kept.close()

    def pieces(self) -> Iterator[bytes]:
        self._file.seek(self._start)
        sent = 0
        while sent < self.total and (piece := self._file.read(min(_PIECE_BYTES, self.total - sent))):
            yield piece
            sent += len(piece)
            if self._progress is not None:
                self._progress(sent, self.total)

    async def pieces_async(self) -> AsyncIterator[bytes]:
        for piece in self.pieces():
            yield piece


def spool() -> BinaryIO:
    return tempfile.SpooledTemporaryFile(SPOOL_BYTES)  # type: ignore[return-value]


class Download:
    """Into a file of our own, which is emptied for every try: what somebody else reads is whole."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._file = spool()
        self._progress = progress
        self._digest = hashlib.sha256()
        self._received = 0
        self._total = 0

    def begin(self, headers: Mapping[str, str]) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._digest = hashlib.sha256()
        self._received = 0
        length = headers.get("content-length", "")
        self._total = int(length) if length.isdigit() else 0

    def take(self, piece: bytes) -> None:
        self._file.write(piece)
        self._digest.update(piece)
        self._received += len(piece)
        if self._progress is not None:
            self._progress(self._received, max(self._total, self._received))

    def check(self, headers: Mapping[str, str]) -> None:
        """Content is named by its SHA-256."""
        tag = _SHA256_TAG.fullmatch(headers.get("etag", ""))
        if tag is not None and tag[1] != self._digest.hexdigest():
            raise ConnectionFailed("The content was broken on the way: its SHA-256 is another.")

    def close(self) -> None:
        self._file.close()

    def deliver(self, to: Sink) -> int:
        """Its size. A path gets the whole file or keeps what it had; a link stays, and so do devices and pipes."""
        self._file.seek(0)
        if not isinstance(to, (str, os.PathLike)):
            shutil.copyfileobj(self._file, to)
            return self._received
        path = Path(os.path.realpath(to))
        if path.exists() and not path.is_file():
            with path.open("wb") as special:
                shutil.copyfileobj(self._file, special)
            return self._received
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as whole:
                shutil.copyfileobj(self._file, whole)
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
        return self._received


def _umask() -> int:
    """There is no other way to ask than to set it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
