"""The path /mcp: checks host, origin and credential, and passes the request to the server of the MCP SDK."""

import asyncio
import importlib
from functools import partial
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quarterdeck.api.mcp_endpoint.own_api import OwnApi
from quarterdeck.core import errors
from quarterdeck.core.settings import HttpSettings, ServerSettings, Settings
from quarterdeck.http.request_body import RequestBody

# Which hosts and origins requests to /mcp may name. Against DNS rebinding: a web page whose name is pointed to this
# server after it was loaded could otherwise talk to it from the browser of somebody in its network.

_FOREIGN_HOST = (
    "The Host header of this request is not a name of this server. An operator can list names in "
    "QUARTERDECK_HTTP_PUBLIC_HOSTS."
)
_FOREIGN_ORIGIN = "Web pages of this origin may not use /mcp. An operator can list it in QUARTERDECK_HTTP_CORS_ORIGINS."


class Sites:
    def __init__(self, server: ServerSettings, http: HttpSettings) -> None:
        self._names: frozenset[str] = http.public_hosts or frozenset()
        self._origins: frozenset[str] = http.cors_origins or frozenset()
        # A server that can be reached from elsewhere gains nothing for a page that can send requests to it anyway. Its
        # names are only known if the operator lists them.
        self._only_known = http.public_hosts is not None or (http.trusted_proxies is None and _is_loopback(server.host))

    def check(self, scope: Scope) -> None:
        """Raises ServiceError."""
        headers = Headers(scope=scope)
        host = _name(headers.get("host", ""))
        if self._only_known and not self._is_own(host):
            raise errors.exceeds_caller(_FOREIGN_HOST)
        for origin in headers.getlist("origin"):
            name = _name(origin.partition("://")[2])
            is_own = name == host or _is_loopback(name) or name in self._names
            if origin not in self._origins and not is_own:
                raise errors.exceeds_caller(_FOREIGN_ORIGIN)

    def _is_own(self, name: str) -> bool:
        """Addresses are own: nobody can point them elsewhere."""
        return name in self._names or _is_loopback(name) or _is_address(name)


def _name(authority: str) -> str:
    """Without the port. Of an IPv6 address without the brackets."""
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return ""


def _is_loopback(name: str) -> bool:
    if _is_address(name):
        return ip_address(name).is_loopback
    return name == "localhost" or name.endswith(".localhost")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


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
