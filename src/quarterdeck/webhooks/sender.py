"""Posts to URLs that callers configured (SSRF protection). The name is resolved once, all its addresses are checked,
and the connection goes to one of them, so that a second DNS answer cannot redirect it. No redirects, no proxies, no
decompression, and one deadline for the whole exchange.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from ipaddress import ip_address

import httpcore2
from msgspec import Struct

from quarterdeck.core.errors import ServiceError
from quarterdeck.core.settings import WebhookSettings
from quarterdeck.webhooks.rules import IpAddress, Target, is_public, read_url

# Returns the addresses of a host, in the order to try them.
Resolve = Callable[[str, int], Awaitable[list[IpAddress]]]

# How much of the response body is read before the connection is closed. Only the status matters.
_ANSWER_BYTES = 4 * 1024
_ANSWER_SECONDS = 1.0
_TRIED_ADDRESSES = 3
_AGENT = "Quarterdeck-Webhooks/1"
_ERROR_CHARACTERS = 300


class Answered(Struct, frozen=True):
    status: int
    retry_after: str | None


class SendError(Exception):
    """Why there was no response. The message is shown to users, the detail goes to the operator's log."""

    def __init__(self, message: str, detail: str | None = None) -> None:
        super().__init__(message)
        self.detail = detail or message


class UnreachableError(SendError):
    """There was no connection. Users see the same message whatever the reason. Otherwise a webhook would tell which
    names exist in the network of the service."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            "The host could not be reached: its name does not resolve, its address is not allowed, or it does not "
            "accept connections.",
            detail,
        )


class Sender:
    def __init__(
        self, settings: WebhookSettings, *, resolve: Resolve | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._settings = settings
        # A separate pool: slow DNS lookups delay only webhooks.
        self._resolvers = ThreadPoolExecutor(settings.concurrency, thread_name_prefix="resolve")
        self._backend = _CheckedBackend(settings, resolve or self._resolve)
        self._tls = tls

    async def post(self, url: str, headers: dict[str, str], body: bytes) -> Answered:
        try:
            target = read_url(url, self._settings)
            async with asyncio.timeout(self._settings.timeout_seconds):
                return await self._exchange(target, headers, body)
        except ServiceError as fault:
            # The settings changed after the URL was stored.
            raise UnreachableError(fault.message) from None
        except TimeoutError:
            raise SendError(f"No response within {self._settings.timeout_seconds:g} seconds.") from None
        except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError, OSError) as fault:
            raise SendError(_message(fault)) from fault

    async def _exchange(self, target: Target, headers: dict[str, str], body: bytes) -> Answered:
        origin = httpcore2.Origin(target.scheme.encode(), target.host.encode(), target.port)
        url = httpcore2.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)
        own = {"Host": target.authority, "User-Agent": _AGENT, "Content-Type": "application/json"}
        own["Connection"] = "close"
        sent: list[tuple[bytes | str, bytes | str]] = [*own.items(), *headers.items()]
        async with (
            httpcore2.AsyncHTTPConnection(origin, self._trust(target), network_backend=self._backend) as connection,
            connection.stream("POST", url, headers=sent, content=body) as response,
        ):
            await _read_some(response)
            found = (value.decode("latin-1") for name, value in response.headers if name.lower() == b"retry-after")
            return Answered(response.status, next(found, None))

    def _trust(self, target: Target) -> ssl.SSLContext | None:
        """Created on first use: loading the CA certificates is slow, and most workers never need them."""
        if self._tls is None and target.scheme == "https":
            self._tls = httpcore2.default_ssl_context()
        return self._tls

    async def _resolve(self, host: str, port: int) -> list[IpAddress]:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            self._resolvers, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        return [ip_address(address[0]) for *_, address in found]

    def close(self) -> None:
        self._resolvers.shutdown(wait=False, cancel_futures=True)


async def _read_some(response: httpcore2.Response) -> None:
    """Read a short response to its end, so that the receiver sees no broken connection. Errors do not matter here."""
    read = 0
    with suppress(TimeoutError, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException):
        async with asyncio.timeout(_ANSWER_SECONDS), aclosing(response.aiter_stream()) as chunks:
            async for chunk in chunks:
                read += len(chunk)
                if read >= _ANSWER_BYTES:
                    return


class _CheckedBackend(httpcore2.AsyncNetworkBackend):
    def __init__(self, settings: WebhookSettings, resolve: Resolve) -> None:
        self._settings = settings
        self._resolve = resolve
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 (the library's signature)
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        addresses = await self._addresses(host, port)
        for address in addresses[:-1]:
            with suppress(httpcore2.NetworkError, httpcore2.TimeoutException):
                return await self._connect(address, port)
        try:
            return await self._connect(addresses[-1], port)
        except (httpcore2.NetworkError, httpcore2.TimeoutException) as fault:
            reason = "timeout" if isinstance(fault, httpcore2.TimeoutException) else str(fault)
            raise UnreachableError(f"no connection to {addresses[-1]}: {reason}"[:_ERROR_CHARACTERS]) from fault

    async def _connect(self, address: IpAddress, port: int) -> httpcore2.AsyncNetworkStream:
        # A share of the timeout, so that there is time for the next address.
        return await self._network.connect_tcp(
            str(address), port, timeout=self._settings.timeout_seconds / _TRIED_ADDRESSES
        )

    async def _addresses(self, host: str, port: int) -> list[IpAddress]:
        try:
            found = await self._resolve(host, port)
        except OSError:
            found = []
        if not found:
            raise UnreachableError(f"the name {host} does not resolve")
        # All must be public: a name with public and private addresses is a way around this check.
        if not self._settings.allow_private_addresses and not all(map(is_public, found)):
            refused = ", ".join(str(address) for address in found if not is_public(address))
            raise UnreachableError(
                f"the name {host} resolves to addresses that are not public: {refused}"[:_ERROR_CHARACTERS]
            )
        return found[:_TRIED_ADDRESSES]


def _message(fault: Exception) -> str:
    if isinstance(fault, httpcore2.TimeoutException):
        return "The connection timed out."
    if isinstance(fault, httpcore2.ConnectError):
        return f"The connection failed: {fault}"[:_ERROR_CHARACTERS]
    if isinstance(fault, httpcore2.ProtocolError):
        return "The response was invalid or incomplete."
    return "The connection was closed before a response."
