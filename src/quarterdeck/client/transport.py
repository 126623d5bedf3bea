"""All use of httpx2."""

import socket
import ssl
from contextlib import suppress
from typing import Any

import httpx2

from quarterdeck.client.errors import ConnectionFailed
from quarterdeck.client.requests import Target

TransportError = httpx2.RequestError
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
_CONNECT_SECONDS = 10.0


def open_http(target: Target, timeout: float) -> httpx2.Client:
    return httpx2.Client(**_options(target, timeout))


def async_open_http(target: Target, timeout: float) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(**_options(target, timeout))


def _options(target: Target, timeout: float) -> dict[str, Any]:
    # Without encryption, an empty context: loading the CA certificates takes longer than most calls.
    verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if target.is_local_http else True
    return {
        "headers": target.headers,
        "timeout": timeouts(timeout),
        "follow_redirects": False,
        "verify": verify,
        # A proxy cannot reach this machine's loopback addresses, and would receive the key unencrypted.
        "trust_env": not target.is_local_http,
    }


def interrupt(response: httpx2.Response) -> None:
    """Ends a stream that another thread is reading. Closing the socket would not wake up that thread."""
    found = response.extensions["network_stream"].get_extra_info("socket")
    with suppress(OSError):
        socket.socket.shutdown(found, socket.SHUT_RDWR)


def timeouts(seconds: float) -> httpx2.Timeout:
    return httpx2.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS))


def connection_error(error: httpx2.RequestError, target: Target) -> ConnectionFailed:
    """Errors of httpx2 often have no text. The name of the type is then the reason."""
    lines = str(error).strip().splitlines()
    reason = lines[0] if lines else _words(type(error).__name__)
    sent = not isinstance(error, _NOT_SENT)
    start = "Connection lost" if sent else "Cannot connect"
    return ConnectionFailed(f"{start} ({target.base_url}): {reason}", sent=sent)


def _words(name: str) -> str:
    """ReadTimeout → read timeout."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()
