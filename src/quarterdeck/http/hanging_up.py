"""The end of a connection: noticing that the client has left, and closing it from this side."""

from starlette.types import Receive, Scope

from quarterdeck.wire.exchange import HANG_UP


async def left(receive: Receive) -> None:
    """Returns once the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def hang_up(scope: Scope) -> None:
    """End the connection that a request came by, whether its client reads or not."""
    scope[HANG_UP]()
