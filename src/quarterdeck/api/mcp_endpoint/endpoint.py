"""The path /mcp: checks host, origin and credential, and passes the request to the server of the MCP SDK."""

import asyncio
import importlib
from functools import partial

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quarterdeck.api.mcp_endpoint.own_api import OwnApi
from quarterdeck.api.mcp_endpoint.sites import Sites
from quarterdeck.core.settings import Settings
from quarterdeck.http.request_body import RequestBody

_SERVER = "quarterdeck.api.mcp_endpoint.server"
# Set for each response by the middleware.
_NOT_REPEATED = frozenset({b"content-length", b"x-request-id"})


class McpEndpoint:
    """POST only: without state there is no stream to GET and no session to DELETE."""

    def __init__(self, settings: Settings, stopping: asyncio.Event) -> None:
        """`stopping` is set when the process is about to end."""
        self._mcp = settings.mcp
        self._http = settings.http
        self._sites = Sites(settings.server, settings.http)
        self._stopping = stopping
        # The whole app, whose operations are called. Set when it exists.
        self.app: ASGIApp | None = None

    async def check(self, scope: Scope) -> Response | None:
        """The response to a caller without a valid credential. Raises ServiceError for a foreign host or origin."""
        self._sites.check(scope)
        caller = await self._api(scope).request("GET", "/v1/whoami")
        if caller.ok:
            return None
        response = Response(caller.content, caller.status)
        response.raw_headers += [(name, value) for name, value in caller.headers if name not in _NOT_REPEATED]
        return response

    async def respond(self, scope: Scope, receive: Receive) -> Response:
        refused = await self.check(scope)
        if refused is not None:
            return refused
        api = self._api(scope)
        # In a thread: the import takes long, and only once.
        server = await asyncio.to_thread(importlib.import_module, _SERVER)
        body = await RequestBody(receive, None, self._http.json_body_bytes, self._http).read()
        serve = partial(server.serve, api, self._mcp.wait_seconds, self._stopping, max(1, len(body)))
        return _Exchange(serve, body)

    def _api(self, scope: Scope) -> OwnApi:
        assert self.app is not None
        return OwnApi(self.app, scope)


class _Exchange(Response):
    def __init__(self, serve: ASGIApp, body: bytes) -> None:
        self._serve = serve
        self._body = [body]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def receive_again() -> Message:
            if self._body:
                return {"type": "http.request", "body": self._body.pop(), "more_body": False}
            # The next message says that the client has left.
            return await receive()

        await self._serve(scope, receive_again, send)
