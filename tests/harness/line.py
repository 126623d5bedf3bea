"""The line between the application and its database: a TCP proxy that can delay, swallow and cut what passes."""

import asyncio
from contextlib import suppress
from typing import Self

_PIECE_BYTES = 64 * 1024


class Line:
    def __init__(self, target: str) -> None:
        self._target = target
        self._server: asyncio.Server
        self._ends: set[asyncio.StreamWriter] = set()
        self._passing: set[asyncio.Task[None]] = set()
        self._delay_seconds = 0.0
        self._open = asyncio.Event()
        self._open.set()

    @classmethod
    async def laid(cls, target: str) -> Self:
        """To the Unix socket `target`."""
        line = cls(target)
        line._server = await asyncio.start_server(line._accept, "127.0.0.1", 0)
        return line

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def delay(self, seconds: float) -> None:
        """What passes in either direction comes later by so much. 0: as it was."""
        self._delay_seconds = seconds

    def swallow(self, *, on: bool) -> None:
        """Nothing passes, and nobody is told. What was under way when it began comes when it ends."""
        if on:
            self._open.clear()
        else:
            self._open.set()

    def cut(self) -> None:
        """Every connection is reset."""
        for end in list(self._ends):
            end.transport.abort()

    async def close(self) -> None:
        self._server.close()
        self.cut()
        for task in self._passing:
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, forth = await asyncio.open_unix_connection(self._target)
        except OSError:
            writer.transport.abort()
            return
        for source, sink in ((reader, forth), (back, writer)):
            task = asyncio.create_task(self._pass(source, sink))
            self._passing.add(task)
            task.add_done_callback(self._passing.discard)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        self._ends.add(sink)
        try:
            with suppress(OSError):
                while data := await source.read(_PIECE_BYTES):
                    if self._delay_seconds:
                        await asyncio.sleep(self._delay_seconds)
                    await self._open.wait()
                    sink.write(data)
                    await sink.drain()
        finally:
            self._ends.discard(sink)
            sink.close()
