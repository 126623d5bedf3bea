"""Everything that is known of httpx and asyncio. Imported with the first client that is made, not before: each of them
takes longer to import than all the rest."""

import asyncio
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
    return httpx.Client(headers=target.headers, timeout=timeouts(timeout), follow_redirects=False)


def open_async_http(target: Target, timeout: float) -> httpx.AsyncClient:
    return httpx.AsyncClient(headers=target.headers, timeout=timeouts(timeout), follow_redirects=False)


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
