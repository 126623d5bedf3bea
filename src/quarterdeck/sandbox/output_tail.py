"""The end of what a command or a service wrote."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

_BYTES = 2000
_PIPE_BYTES = 64 * 1024
# Between two reads of a pipe, so that a flood takes little time of the event loop. The service waits meanwhile.
_PAUSE_SECONDS = 0.01


def last_line(output: IO[bytes]) -> str:
    """Empty if there is none. The descriptor itself may be for writing only."""
    with suppress(OSError), open(f"/proc/self/fd/{output.fileno()}", "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _BYTES))
        return _last_line(file.read())
    return ""


def _last_line(data: bytes) -> str:
    return (data.decode(errors="replace").strip().splitlines() or [""])[-1]


class ErrorTail:
    """The end of what a service wrote to stderr, in memory. A file would grow on the disk of the host for hours."""

    def __init__(self) -> None:
        self._data = b""
        self._pipe: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def write(self, data: bytes) -> None:
        self._read()
        self._add(data)

    def last_line(self) -> str:
        self._read()
        return _last_line(self._data)

    @contextmanager
    def pipe(self) -> Iterator[int]:
        """A descriptor for the stderr of the service. It is read until the block is left."""
        self._pipe, writer = os.pipe()
        os.set_blocking(self._pipe, False)
        self._wait()
        try:
            yield writer
        finally:
            self._read()
            asyncio.get_running_loop().remove_reader(self._pipe)
            if self._timer is not None:
                self._timer.cancel()
            os.close(self._pipe)
            os.close(writer)
            self._pipe = None

    def _wait(self) -> None:
        assert self._pipe is not None
        asyncio.get_running_loop().add_reader(self._pipe, self._on_data)

    def _on_data(self) -> None:
        assert self._pipe is not None
        self._read()
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._pipe)
        self._timer = loop.call_later(_PAUSE_SECONDS, self._wait)

    def _read(self) -> None:
        if self._pipe is not None:
            with suppress(BlockingIOError):
                self._add(os.read(self._pipe, _PIPE_BYTES))

    def _add(self, data: bytes) -> None:
        self._data = (self._data + data)[-_BYTES:]
