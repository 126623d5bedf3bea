"""Uploads and downloads, in chunks from and to files."""

import errno
import hashlib
import io
import mimetypes
import os
import re
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from quarterdeck.client.errors import ConnectionFailed, InvalidArgument

# Called with the number of bytes sent or received so far, and the total.
Progress = Callable[[int, int], None]
Source = bytes | BinaryIO
Sink = str | os.PathLike[str] | BinaryIO
Bundle = str | os.PathLike[str] | bytes | BinaryIO

_CHUNK_BYTES = 64 * 1024
# Larger content is stored on disk.
SPOOL_BYTES = 8 * 1024 * 1024
_SHA256_TAG = re.compile(r'"([0-9a-f]{64})"')
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,19})-[0-9]{1,19}/(?:[0-9]{1,19}|\*)", re.ASCII)


class Upload:
    """The content of a file from its current position. Every attempt reads it again, so a file that cannot seek is
    copied first."""

    def __init__(self, source: Source, progress: Progress | None = None) -> None:
        self._copy: BinaryIO | None = None
        if isinstance(source, bytes):
            self._file: BinaryIO = io.BytesIO(source)
        elif source.seekable():
            self._file = source
        else:
            self._file = self._copy = spool()
            shutil.copyfileobj(source, self._copy)
            self._copy.seek(0)
        self._start = self._file.tell()
        self.total = self._file.seek(0, os.SEEK_END) - self._start
        self._progress = progress

    def close(self) -> None:
        """Closes the copy. The caller's own file stays open."""
        if self._copy is not None:
            self._copy.close()

    def chunks(self) -> Iterator[bytes]:
        self._file.seek(self._start)
        sent = 0
        while sent < self.total and (chunk := self._file.read(min(_CHUNK_BYTES, self.total - sent))):
            yield chunk
            sent += len(chunk)
            if self._progress is not None:
                self._progress(sent, self.total)

    async def async_chunks(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks():
            yield chunk


class NamedSource(Struct, frozen=True):
    content: Source
    name: str
    media_type: str


@contextmanager
def named_source(file: Bundle, name: str | None, media_type: str | None) -> Iterator[NamedSource]:
    """A path is opened. Its name, or that of the open file, is the default for `name`."""
    with ExitStack() as stack:
        if isinstance(file, (str, os.PathLike)):
            content: Source = stack.enter_context(open(file, "rb"))
            given: object = os.fspath(file)
        else:
            content, given = file, getattr(file, "name", None)
        if name is None and isinstance(given, str):
            name = os.path.basename(given)
        if not name:
            raise InvalidArgument("name is required, because the content is no named file.")
        guessed = mimetypes.guess_type(name)[0] or "application/octet-stream"
        yield NamedSource(content, name, media_type or guessed)


def spool() -> BinaryIO:
    return tempfile.SpooledTemporaryFile(SPOOL_BYTES)  # type: ignore[return-value]


class Download:
    """Receives into a temporary file: the target only ever gets complete content. After a lost connection, the next
    attempt asks for the rest, if the server has named the content by a tag."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._file = spool()
        self._progress = progress
        self._digest = hashlib.sha256()
        self._received = 0
        self._total = 0
        # None: the content cannot be continued.
        self._tag: str | None = None

    @property
    def kept_bytes(self) -> int:
        """How much the next attempt need not receive again."""
        return self._received if self._tag is not None and self._received < self._total else 0

    def headers(self) -> dict[str, str]:
        """Of the next attempt. If the content has changed, the server sends all of it."""
        if self._tag is None or not self.kept_bytes:
            return {}
        return {"Range": f"bytes={self.kept_bytes}-", "If-Range": self._tag}

    def start(self, headers: Mapping[str, str]) -> None:
        if (rest := _CONTENT_RANGE.fullmatch(headers.get("content-range", ""))) is not None:
            if int(rest[1]) != self._received or headers.get("etag") != self._tag:
                self._tag = None
                raise ConnectionFailed("The server sent another part of the content than it was asked for.")
            return
        self._file.seek(0)
        self._file.truncate()
        self._digest = hashlib.sha256()
        self._received = 0
        length = headers.get("content-length", "")
        self._total = int(length) if length.isdigit() else 0
        # A weak tag does not promise the same bytes, and the length of encoded content is not that of the content.
        tag = headers.get("etag", "")
        self._tag = tag if tag.startswith('"') and "content-encoding" not in headers else None

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self._digest.update(chunk)
        self._received += len(chunk)
        if self._progress is not None:
            self._progress(self._received, max(self._total, self._received))

    def check(self, headers: Mapping[str, str]) -> None:
        """The ETag of content is its SHA-256."""
        tag = _SHA256_TAG.fullmatch(headers.get("etag", ""))
        if tag is not None and tag[1] != self._digest.hexdigest():
            self._tag = None
            raise ConnectionFailed("The downloaded content is damaged: its SHA-256 does not match.")

    def close(self) -> None:
        self._file.close()

    def save(self, to: Sink) -> int:
        """Returns the size. A path is replaced by the complete file; a device or pipe is written to. A symbolic link is
        refused: whoever can write to the folder could make it lead anywhere. Links in the folders above are followed.
        """
        self._file.seek(0)
        if not isinstance(to, (str, os.PathLike)):
            shutil.copyfileobj(self._file, to)
            return self._received
        path = Path(to)
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            mode = stat.S_IFREG
        if stat.S_ISLNK(mode):
            raise OSError(errno.ELOOP, "is a symbolic link, which a download does not follow", str(path))
        if stat.S_ISREG(mode):
            self._replace(path)
        else:
            self._write_to_special(path)
        return self._received

    def _replace(self, path: Path) -> None:
        # A new file under a random name. Renaming replaces a link that appears meanwhile instead of following it.
        handle, name = tempfile.mkstemp(prefix=".download-", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as complete:
                shutil.copyfileobj(self._file, complete)
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise

    def _write_to_special(self, path: Path) -> None:
        # Without O_CREAT and O_TRUNC: if the path is another file by now, nothing is lost.
        handle = os.open(path, os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0))
        with os.fdopen(handle, "wb") as special:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(errno.EEXIST, "changed during the download", str(path))
            shutil.copyfileobj(self._file, special)


def _umask() -> int:
    """The umask can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
