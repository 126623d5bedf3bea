"""The end of a connection: noticing that the client has left, and closing it from this side."""

from starlette.types import Receive, Scope


async def left(receive: Receive) -> None:
    """Return once the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


def hang_up(scope: Scope) -> None:
    """Close the connection of a request, if the server offers a way to do that."""
    close = scope.get("quarterdeck.hang_up")
    if close is not None:
        close()
