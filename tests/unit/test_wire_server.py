"""The end of a server, with real sockets and an application of a few lines."""

import asyncio
import socket

from starlette.types import Receive, Scope, Send

from quarterdeck.core.settings import HttpSettings
from quarterdeck.wire.server import serve

REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


class Slow:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.begun, self.may_go_on = asyncio.Event(), asyncio.Event()
        self.is_done = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for step in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{step}.complete"})
            return
        self.begun.set()
        await self.may_go_on.wait()
        self.is_done = True
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})


async def test_what_is_done_for_a_client_that_left_is_done_before_the_end() -> None:
    app, stop = Slow(), asyncio.Event()
    async with asyncio.timeout(30):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = socket.create_connection(listener.getsockname())
            serving = asyncio.create_task(serve(app, listener, HttpSettings(), stop))
            client.sendall(REQUEST)
            await app.begun.wait()
            # Not in order, so that it is noticed at once.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
            stop.set()
            await asyncio.sleep(0.2)
            assert not serving.done(), "the application is still at it"
            app.may_go_on.set()
            await serving
    assert app.is_done


async def test_who_is_answered_while_the_server_stops_is_told_that_it_closes() -> None:
    app, stop = Slow(), asyncio.Event()
    async with asyncio.timeout(30):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            serving = asyncio.create_task(serve(app, listener, HttpSettings(), stop))
            writer.write(REQUEST)
            await app.begun.wait()
            stop.set()
            await asyncio.sleep(0.05)
            app.may_go_on.set()
            answer = await reader.read()
            await serving
            writer.close()
    assert b"connection: close\r\n" in answer
    assert answer.endswith(b"done")
