"""Which sockets of a process are connections that others opened to it."""

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from quarterdeck.http.connections import Connections


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Of one connection to a port on which this process listens: the other's, and its own."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        client = stack.enter_context(socket.create_connection(listener.getsockname()))
        client.settimeout(5)
        yield client, stack.enter_context(listener.accept()[0])


@pytest.mark.parametrize("told", [True, False], ids=["Linux", "macOS"])
async def test_listeners_are_known_where_the_system_does_not_tell(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    def untold(self: socket.socket, level: int, option: int, *size: int) -> Any:
        if option == socket.SO_ACCEPTCONN and level == socket.SOL_SOCKET:
            raise OSError(errno.ENOPROTOOPT, "Protocol not available")
        return super(socket.socket, self).getsockopt(level, option, *size)

    if not told:
        monkeypatch.setattr(socket.socket, "getsockopt", untold)
    connections = Connections()
    for _ in range(2):
        await connections.part()
    assert ends[0].recv(1) == b"", "was not known to be accepted"
