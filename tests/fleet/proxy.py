"""A TCP proxy between the fleet's processes and PostgreSQL. It can delay, hold back and cut the traffic."""

import asyncio
from contextlib import suppress
from typing import Self

_CHUNK_BYTES = 64 * 1024


class Proxy:
    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        self._server: asyncio.Server
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._delay_seconds = 0.0
        self._forwarding = asyncio.Event()
        self._forwarding.set()

    @classmethod
    async def started(cls, socket_path: str) -> Self:
        """Forward to this Unix socket."""
        proxy = cls(socket_path)
        proxy._server = await asyncio.start_server(proxy._accept, "127.0.0.1", 0)
        return proxy

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def set_delay(self, seconds: float) -> None:
        """Delay the traffic in both directions by this much. 0 is normal operation."""
        self._delay_seconds = seconds

    def set_blocked(self, *, blocked: bool) -> None:
        """While blocked, connections stay open and nothing is forwarded. Traffic held back is forwarded afterwards."""
        if blocked:
            self._forwarding.clear()
        else:
            self._forwarding.set()

    def cut(self) -> None:
        """Reset every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def close(self) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_unix_connection(self._socket_path)
        except OSError:
            writer.transport.abort()
            return
        for source, target in ((reader, server_writer), (server_reader, writer)):
            task = asyncio.create_task(self._forward(source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        self._writers.add(target)
        try:
            with suppress(OSError):
                while data := await source.read(_CHUNK_BYTES):
                    if self._delay_seconds:
                        await asyncio.sleep(self._delay_seconds)
                    await self._forwarding.wait()
                    target.write(data)
                    await target.drain()
        finally:
            self._writers.discard(target)
            target.close()
