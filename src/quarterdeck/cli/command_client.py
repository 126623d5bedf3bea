"""The client for commands. Most commands send one small request, and importing httpx takes longer than that: such
requests go through http.client of the standard library. Files, event streams and proxies need httpx."""

import http.client
import os
import ssl
import sys
import time
from collections.abc import Generator, Mapping
from socket import socket
from types import ModuleType
from typing import TYPE_CHECKING, cast
from urllib.parse import quote, urlencode, urlsplit

from quarterdeck.client import Client, ConnectionFailed
from quarterdeck.client.calls import Response

if TYPE_CHECKING:
    from quarterdeck.client.event_stream import EventFollower
    from quarterdeck.client.models import Delta, Event
    from quarterdeck.client.requests import Id, Request
    from quarterdeck.client.transfers import Download, Upload

_CONNECT_SECONDS = 10.0
_CHUNK_BYTES = 64 * 1024


class CommandClient(Client):
    """Unlike `Client`, it is for one thread."""

    _connection: http.client.HTTPConnection | None = None
    _has_httpx = False

    def _open(self) -> None:
        """httpx is opened by the first request that needs it."""

    def _open_httpx(self) -> None:
        if not self._has_httpx:
            # httpx imports its own command line with click, rich and pygments if these are installed. With None that
            # import fails, which httpx expects.
            sys.modules.setdefault("httpx._main", cast(ModuleType, None))
            super()._open()
            self._has_httpx = True
            self._disconnect()

    def close(self) -> None:
        self._disconnect()
        if self._has_httpx:
            super().close()

    def _send(
        self, request: "Request", upload: "Upload | None", download: "Download | None"
    ) -> "Response | ConnectionFailed":
        if upload is not None or download is not None or self._needs_proxy():
            self._open_httpx()
            return super()._send(request, upload, download)
        try:
            connection = self._connected()
        except (OSError, ValueError) as error:
            return self._failure("Cannot connect", error, sent=False)
        try:
            return self._exchange(connection, request)
        except (OSError, http.client.HTTPException) as error:
            return self._failure("Connection lost", error, sent=True)

    def _follow(
        self,
        follower: "EventFollower",
        path: "Mapping[str, Id | int]",
        workspace_id: "Id | None",
        silence_seconds: float,
    ) -> "Generator[Event | Delta, None, None]":
        self._open_httpx()
        return super()._follow(follower, path, workspace_id, silence_seconds)

    def _needs_proxy(self) -> bool:
        if self._target.is_local_http:
            return False
        from urllib.request import getproxies

        return bool(getproxies())

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            parts = urlsplit(self._target.base_url)
            assert parts.hostname is not None, "checked by the client"
            timeout = min(_CONNECT_SECONDS, self._timeout)
            if parts.scheme == "https":
                context = _tls_context()
                self._connection = http.client.HTTPSConnection(
                    parts.hostname, parts.port, timeout=timeout, context=context
                )
            else:
                self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
        if self._connection.sock is None:
            # `timeout` is that of the connection; afterwards the client's own applies.
            self._connection.connect()
            cast(socket, self._connection.sock).settimeout(self._timeout)
        return self._connection

    def _exchange(self, connection: http.client.HTTPConnection, request: "Request") -> Response:
        path = quote(urlsplit(self._target.base_url).path, safe="/%") + request.path
        query = f"?{urlencode(request.query)}" if request.query else ""
        connection.request(request.method, path + query, request.content, self._target.headers | request.headers)
        response = connection.getresponse()
        deadline = time.monotonic() + self._timeout
        body = bytearray()
        while chunk := response.read(_CHUNK_BYTES):
            body += chunk
            if time.monotonic() > deadline:
                raise TimeoutError(f"the response was not complete within {self._timeout:g} seconds")
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Response(response.status, headers, bytes(body))

    def _failure(self, start: str, error: Exception, *, sent: bool) -> ConnectionFailed:
        self._disconnect()
        reason = str(error).strip() or type(error).__name__
        return ConnectionFailed(f"{start} ({self._target.base_url}): {reason}", sent=sent)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _tls_context() -> ssl.SSLContext:
    """The same certificates as httpx uses."""
    if file := os.environ.get("SSL_CERT_FILE"):
        return ssl.create_default_context(cafile=file)
    if folder := os.environ.get("SSL_CERT_DIR"):
        return ssl.create_default_context(capath=folder)
    import certifi

    return ssl.create_default_context(cafile=certifi.where())
