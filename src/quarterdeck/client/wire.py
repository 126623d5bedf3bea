"""Everything that is known of httpx and asyncio. Imported with the first client that is made, not before: each of them
takes longer to import than all the rest."""

import asyncio
import ssl
from importlib.metadata import PackageNotFoundError, version

import httpx

from quarterdeck.client.errors import ConnectionFailed
from quarterdeck.client.requests import Target

Fault = httpx.RequestError
pause = asyncio.sleep
in_thread = asyncio.to_thread
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_CONNECT_SECONDS = 10.0


def client_name() -> str:
    try:
        return f"quarterdeck-python/{version('quarterdeck')}"
    except PackageNotFoundError:
        return "quarterdeck-python"


def open_http(target: Target, timeout: float) -> httpx.Client:
    return httpx.Client(
        headers=target.headers,
        timeout=timeouts(timeout),
        follow_redirects=False,
        verify=_trust(target),
        trust_env=_asks_proxies(target),
    )


def open_async_http(target: Target, timeout: float) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        headers=target.headers,
        timeout=timeouts(timeout),
        follow_redirects=False,
        verify=_trust(target),
        trust_env=_asks_proxies(target),
    )


def _asks_proxies(target: Target) -> bool:
    """A proxy that is set for the web would be handed the key, in the clear, and cannot reach this machine's own."""
    return not target.is_here


def _trust(target: Target) -> "ssl.SSLContext | bool":
    """Nobody, where nothing is encrypted: the certificates of the world take longer to load than most calls."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if target.is_here else True


def timeouts(seconds: float) -> httpx.Timeout:
    return httpx.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS))


def explained(fault: httpx.RequestError, target: Target) -> ConnectionFailed:
    """httpx often has no words of its own; the type then says most."""
    words = str(fault).strip().splitlines()
    reason = words[0] if words else _spaced(type(fault).__name__)
    sent = not isinstance(fault, _NOT_SENT)
    begin = "The connection broke" if sent else "No connection"
    return ConnectionFailed(f"{begin} ({target.base_url}): {reason}", sent=sent)


def _spaced(name: str) -> str:
    """ReadTimeout → read timeout."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()
