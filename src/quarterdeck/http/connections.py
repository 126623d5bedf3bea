"""The connections of this process, and which of them carry a request. Those that carry one have times of their own.

Of the others the server ends those on which nothing is asked. It waits for ever for an answer to be read: to the
application that is sent once the server has it. And told to stop, it waits for the rest of a head until it is killed.
"""

import asyncio
import errno
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, TypeAlias

from starlette.types import Scope

# The open descriptors of the process itself, on Linux and macOS alike.
_DESCRIPTORS = "/dev/fd"
# What a stopping server gives a client to send the rest of a head, or to read more of an answer.
PARTING_SECONDS = 1.0
LOOKS = 4
# Of Linux's `struct tcp_info`: `tcpi_unacked` and, far behind it, `tcpi_bytes_acked` and `tcpi_notsent_bytes`.
_TCP_INFO = struct.Struct("=24x I 92x Q 16x I")

# Host and port.
Address: TypeAlias = tuple[str, int]


class Connections:
    def __init__(self) -> None:
        self._ports = set(_listening_ports())
        # How many requests each carries.
        self._carrying: dict[Address | None, int] = {}
        # Of those with something unread: how much was read, and since when it is no more.
        self._unread: dict[Address, tuple[int, float]] = {}
        # Of those without a request at the last look since the stop: how much was read.
        self._parting: dict[Address | None, int] = {}

    def begin(self, scope: Scope) -> Address | None:
        """A request has come. What is returned is to be given to `end`."""
        peer = peer_of(scope)
        self._carrying[peer] = self._carrying.get(peer, 0) + 1
        return peer

    def end(self, peer: Address | None) -> None:
        # What came and went between two looks: its answer has yet to be read.
        self._parting.pop(peer, None)
        others = self._carrying.pop(peer) - 1
        if others:
            self._carrying[peer] = others

    async def end_unread(self, seconds: float) -> None:
        """A look at all, to be taken `LOOKS` times as often: ends those of which nothing was read for so long, and at
        most a quarter more. Only Linux tells."""
        if sys.platform == "linux":
            # With thousands of connections this takes a while.
            await asyncio.to_thread(self._end_unread, seconds)

    async def part(self) -> None:
        """A look at all, to be taken every `PARTING_SECONDS` from the stop on: ends those that had no request at the
        look before either, and of which nothing was read since. Only Linux tells of the latter."""
        parting: dict[Address | None, int] = {}
        for peer, connection in self._free():
            _, parting[peer] = _progress(connection)
            if self._parting.get(peer) == parting[peer]:
                shut_down(connection)
        self._parting = parting

    def _end_unread(self, seconds: float) -> None:
        now, unread = time.monotonic(), {}
        for peer, connection in self._free():
            waiting, read = _progress(connection)
            if not waiting:
                continue
            earlier, since = self._unread.get(peer, (read, now))
            unread[peer] = (read, since if earlier == read else now)
            if now - unread[peer][1] >= seconds:
                shut_down(connection)
        self._unread = unread

    def _free(self) -> Iterator[tuple[Address, socket.socket]]:
        return (each for each in accepted(self._ports) if each[0] not in self._carrying)


def peer_of(scope: Scope) -> Address | None:
    client = scope.get("client")
    return None if client is None else _address(client)


def accepted(ports: set[int]) -> Iterator[tuple[Address, socket.socket]]:
    """Connections that others opened to one of these ports of ours."""
    for each in _tcp_sockets():
        # One that has ended meanwhile has no peer any more.
        with suppress(OSError):
            if each.getsockname()[1] in ports:
                yield _address(each.getpeername()), each


def shut_down(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _progress(connection: socket.socket) -> tuple[bool, int]:
    """Whether something is on its way, and how many bytes have arrived at the other end."""
    if sys.platform != "linux":
        return False, 0
    raw = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
    # What only looks like Linux tells less of it.
    unacknowledged, arrived, unsent = _TCP_INFO.unpack(raw.ljust(_TCP_INFO.size, b"\0"))
    return bool(unacknowledged or unsent), arrived


def _listening_ports() -> Iterator[int]:
    for each in _tcp_sockets():
        with suppress(OSError):
            if _listens(each):
                yield each.getsockname()[1]


def _listens(each: socket.socket) -> bool:
    try:
        return bool(each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:
        # macOS does not tell. Before the application has opened any, one without a peer can be nothing else.
        return not _has_peer(each)


def _has_peer(each: socket.socket) -> bool:
    try:
        each.getpeername()
    except OSError:
        return False
    return True


def _tcp_sockets() -> Iterator[socket.socket]:
    for name in os.listdir(_DESCRIPTORS):
        try:
            # A copy: the number may be closed and given to another connection between two of our steps.
            copy = _socket(os.dup(int(name)))
        except OSError as fault:
            # Without a number for the copy nothing was seen, which is not the same as nothing there.
            if fault.errno in (errno.EMFILE, errno.ENFILE):
                raise
            continue
        with copy:
            if copy.family in (socket.AF_INET, socket.AF_INET6) and copy.type == socket.SOCK_STREAM:
                yield copy


def _socket(descriptor: int) -> socket.socket:
    try:
        return socket.socket(fileno=descriptor)
    except OSError:
        # Of something else. Left open, these would double with every look, until none can be opened any more.
        os.close(descriptor)
        raise


def _address(value: Any) -> Address:
    """IPv6 has more parts, and Granian writes ports as text."""
    return value[0], int(value[1])
