"""The end of a connection: noticing that the client has left, and closing it from this side.

The server gives an application no way to close one, and closes none by itself whose client has stopped reading: it
would wait for ever for the rest to be taken.
"""

from starlette.types import Receive, Scope

from quarterdeck.http.connections import accepted, peer_of, shut_down


async def left(receive: Receive) -> None:
    """Returns once the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def hang_up(scope: Scope) -> None:
    """Shut down the connection that a request came by. The server sees it end and tidies up."""
    client, server = peer_of(scope), scope.get("server")
    if client is None or server is None:
        return
    for peer, connection in accepted({int(server[1])}):
        if peer == client:
            shut_down(connection)
            return
