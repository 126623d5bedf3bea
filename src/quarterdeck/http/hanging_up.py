"""The end of a connection: noticing that the client has left, and closing it from this side.

The server gives an application no way to close one, and closes none by itself whose client has stopped reading: it
would wait for ever for the rest to be taken.
"""

import os
import socket
from contextlib import suppress

from starlette.types import Receive, Scope

# The open descriptors of the process itself, on Linux and macOS alike.
_DESCRIPTORS = "/dev/fd"


async def left(receive: Receive) -> None:
    """Returns once the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def hang_up(scope: Scope) -> None:
    """Shut down the connection that a request came by. The server sees it end and tidies up."""
    client, server = scope.get("client"), scope.get("server")
    if client is None or server is None:
        return
    # Granian writes ports as text.
    peer, port = (client[0], int(client[1])), int(server[1])
    for name in os.listdir(_DESCRIPTORS):
        # A copy: the number may be closed and given to another connection between two of our steps.
        with suppress(OSError), socket.socket(fileno=os.dup(int(name))) as connection:
            if connection.getpeername()[:2] == peer and connection.getsockname()[1] == port:
                connection.shutdown(socket.SHUT_RDWR)
                return
