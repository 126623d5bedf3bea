"""Posts to the URLs of webhooks. No redirects, no proxies, no decompression, and one deadline for a whole exchange."""

import asyncio
import ssl
from contextlib import aclosing, suppress
from uuid import UUID

import httpcore2
from msgspec import Struct

from quarterdeck.core.errors import ServiceError
from quarterdeck.core.settings import WebhookSettings
from quarterdeck.outbound.network_backend import CheckedBackend, UnreachableError
from quarterdeck.outbound.resolver import Resolve, ResolveFor, Resolver
from quarterdeck.outbound.rules import OutboundTarget, read_url
from quarterdeck.webhooks.rules import address_policy

# How much of the response body is read before the connection is closed. Only the status matters.
_ANSWER_BYTES = 4 * 1024
_ANSWER_SECONDS = 1.0
_AGENT = "Quarterdeck-Webhooks/1"
_ERROR_CHARACTERS = 300


class Answered(Struct, frozen=True):
    status: int
    retry_after: str | None


class SendError(Exception):
    """Why there was no response. The message is shown to users. If there was not even a connection, it is an
    UnreachableError instead."""


class Sender:
    def __init__(
        self, settings: WebhookSettings, *, resolve: Resolve | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._settings = settings
        self._policy = address_policy(settings)
        self._resolver = Resolver(settings.concurrency)
        self._resolve_for: ResolveFor = self._resolver.for_workspace if resolve is None else lambda _: resolve
        self._tls = tls

    async def post(self, workspace_id: UUID, url: str, headers: dict[str, str], body: bytes) -> Answered:
        try:
            target = read_url(url, self._policy)
            backend = CheckedBackend(
                self._policy, self._resolve_for(workspace_id), timeout_seconds=self._settings.timeout_seconds
            )
            async with asyncio.timeout(self._settings.timeout_seconds):
                return await self._exchange(backend, target, headers, body)
        except ServiceError as fault:
            # The settings changed after the URL was stored.
            raise UnreachableError(fault.message) from None
        except TimeoutError:
            raise SendError(f"No response within {self._settings.timeout_seconds:g} seconds.") from None
        except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError, OSError) as fault:
            raise SendError(_message(fault)) from fault

    async def _exchange(
        self, backend: CheckedBackend, target: OutboundTarget, headers: dict[str, str], body: bytes
    ) -> Answered:
        origin = httpcore2.Origin(target.scheme.encode(), target.host.encode(), target.port)
        url = httpcore2.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)
        own = {"Host": target.authority, "User-Agent": _AGENT, "Content-Type": "application/json"}
        own["Connection"] = "close"
        sent: list[tuple[bytes | str, bytes | str]] = [*own.items(), *headers.items()]
        async with (
            httpcore2.AsyncHTTPConnection(origin, self._trust(target), network_backend=backend) as connection,
            connection.stream("POST", url, headers=sent, content=body) as response,
        ):
            await _read_some(response)
            found = (value.decode("latin-1") for name, value in response.headers if name.lower() == b"retry-after")
            return Answered(response.status, next(found, None))

    def _trust(self, target: OutboundTarget) -> ssl.SSLContext | None:
        """Created on first use: loading the CA certificates is slow, and most workers never need them."""
        if self._tls is None and target.scheme == "https":
            self._tls = httpcore2.default_ssl_context()
        return self._tls

    def close(self) -> None:
        self._resolver.close()


async def _read_some(response: httpcore2.Response) -> None:
    """Read a short response to its end, so that the receiver sees no broken connection. Errors do not matter here."""
    read = 0
    with suppress(TimeoutError, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException):
        async with asyncio.timeout(_ANSWER_SECONDS), aclosing(response.aiter_stream()) as chunks:
            async for chunk in chunks:
                read += len(chunk)
                if read >= _ANSWER_BYTES:
                    return


def _message(fault: Exception) -> str:
    if isinstance(fault, httpcore2.TimeoutException):
        return "The connection timed out."
    if isinstance(fault, httpcore2.ConnectError):
        return f"The connection failed: {fault}"[:_ERROR_CHARACTERS]
    if isinstance(fault, httpcore2.ProtocolError):
        return "The response was invalid or incomplete."
    return "The connection was closed before a response."
