"""Noticing that a client has disconnected."""

from starlette.types import Receive


async def client_left(receive: Receive) -> None:
    """Return once the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
