"""The path /mcp: checks the credential, and passes the request to the server of the MCP SDK."""

import asyncio
import importlib
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quarterdeck.api.mcp_endpoint.own_api import OwnApi
from quarterdeck.core.settings import HttpSettings, McpSettings
from quarterdeck.http.request_body import RequestBody

_SERVER = "quarterdeck.api.mcp_endpoint.server"
# Set for each response by the middleware.
_NOT_REPEATED = frozenset({b"content-length", b"x-request-id"})


class McpEndpoint:
    """POST only: without state there is no stream to GET and no session to DELETE."""

    def __init__(self, mcp: McpSettings, http: HttpSettings) -> None:
        self._mcp = mcp
        self._http = http
        # The whole app, whose operations are called. Set when it exists.
        self.app: ASGIApp | None = None

    async def respond(self, scope: Scope, receive: Receive) -> Response:
        assert self.app is not None
        api = OwnApi(self.app, scope)
        caller = await api.request("GET", "/v1/whoami")
        if not caller.ok:
            response = Response(caller.content, caller.status)
            response.raw_headers += [(name, value) for name, value in caller.headers if name not in _NOT_REPEATED]
            return response
        # In a thread: the import takes long, and only once.
        server = await asyncio.to_thread(importlib.import_module, _SERVER)
        body = await RequestBody(receive, None, self._http.json_body_bytes, self._http).read()
        return _Exchange(server, api, self._mcp.wait_seconds, body)


class _Exchange(Response):
    def __init__(self, server: Any, api: OwnApi, max_wait_seconds: float, body: bytes) -> None:
        self._server = server
        self._api = api
        self._max_wait_seconds = max_wait_seconds
        self._body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body: list[bytes] = [self._body]

        async def receive_again() -> Message:
            if body:
                return {"type": "http.request", "body": body.pop(), "more_body": False}
            # The next message says that the client has left.
            return await receive()

        limit_bytes = max(1, len(self._body))
        await self._server.serve(self._api, self._max_wait_seconds, limit_bytes, scope, receive_again, send)
