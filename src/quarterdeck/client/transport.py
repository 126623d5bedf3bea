"""All use of httpx and asyncio. Imported when the first client is created, because both are slow to import. asyncio is
imported only when it is used."""

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

import httpx

from quarterdeck.client.errors import ConnectionFailed
from quarterdeck.client.requests import Target

P = ParamSpec("P")
T = TypeVar("T")

TransportError = httpx.RequestError
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_CONNECT_SECONDS = 10.0


async def sleep(seconds: float) -> None:
    import asyncio

    await asyncio.sleep(seconds)


async def run_in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    import asyncio

    return await asyncio.to_thread(function, *args, **kwargs)


def open_http(target: Target, timeout: float) -> httpx.Client:
    return httpx.Client(
        headers=target.headers,
        timeout=timeouts(timeout),
        follow_redirects=False,
        verify=_verify(target),
        trust_env=_uses_proxies(target),
    )


def open_async_http(target: Target, timeout: float) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        headers=target.headers,
        timeout=timeouts(timeout),
        follow_redirects=False,
        verify=_verify(target),
        trust_env=_uses_proxies(target),
    )


def interrupt(response: httpx.Response) -> None:
    """Ends a stream that another thread is reading. Closing the socket would not wake up that thread."""
    found = response.extensions["network_stream"].get_extra_info("socket")
    with suppress(OSError):
        socket.socket.shutdown(found, socket.SHUT_RDWR)


def _uses_proxies(target: Target) -> bool:
    """A proxy cannot reach this machine's loopback addresses, and would receive the key unencrypted."""
    return not target.is_local_http


def _verify(target: Target) -> "ssl.SSLContext | bool":
    """An empty context where nothing is encrypted: loading the CA certificates takes longer than most calls."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if target.is_local_http else True


def timeouts(seconds: float) -> httpx.Timeout:
    return httpx.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS))


def connection_error(error: httpx.RequestError, target: Target) -> ConnectionFailed:
    """Errors of httpx often have no text. The name of the type is then the reason."""
    lines = str(error).strip().splitlines()
    reason = lines[0] if lines else _words(type(error).__name__)
    sent = not isinstance(error, _NOT_SENT)
    start = "Connection lost" if sent else "Cannot connect"
    return ConnectionFailed(f"{start} ({target.base_url}): {reason}", sent=sent)


def _words(name: str) -> str:
    """ReadTimeout → read timeout."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()
