"""Posting to addresses that strangers name. The name is resolved once, every address it stands for is checked, and one
of those is connected to, so that no second answer of a name server can lead elsewhere. No redirect is followed, no
proxy asked, nothing unpacked, and the whole exchange has one deadline.
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

# The addresses of a name, in the order in which they are to be tried.
Resolve = Callable[[str, int], Awaitable[list[IpAddress]]]

# A receiver that sends more is cut off: its status has been read, and the rest is of no interest.
_ANSWER_BYTES = 4 * 1024
_ANSWER_SECONDS = 1.0
_TRIED_ADDRESSES = 3
_AGENT = "Quarterdeck-Webhooks/1"
_ERROR_CHARACTERS = 300


class Answered(Struct, frozen=True):
    status: int
    retry_after: str | None


class SendingFailed(Exception):
    """Why no answer came, in words that may be shown: nothing of the URL but its host."""


class Sender:
    def __init__(
        self, settings: WebhookSettings, *, resolve: Resolve | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._settings = settings
        # Threads of their own: names that take long to resolve hold up nothing but webhooks.
        self._resolvers = ThreadPoolExecutor(settings.concurrency, thread_name_prefix="resolve")
        self._backend = _CheckedBackend(settings, resolve or self._resolve)
        self._tls = tls

    async def post(self, url: str, headers: dict[str, str], body: bytes) -> Answered:
        try:
            target = read_url(url, self._settings)
            async with asyncio.timeout(self._settings.timeout_seconds):
                return await self._exchange(target, headers, body)
        except ServiceError as fault:
            # The settings have changed since it was stored.
            raise SendingFailed(fault.message) from None
        except TimeoutError:
            raise SendingFailed(f"There was no answer within {self._settings.timeout_seconds:g} seconds.") from None
        except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError, OSError) as fault:
            raise SendingFailed(_told(fault)) from fault

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
        """Made when first needed: the certificates of the world take time to read, and most workers have no use for
        them."""
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
    """So that a receiver is not cut off in the middle of a short answer. What became of the rest changes nothing."""
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
        return await self._connect(addresses[-1], port)

    async def _connect(self, address: IpAddress, port: int) -> httpcore2.AsyncNetworkStream:
        # A share of the time, so that the next address gets its turn.
        return await self._network.connect_tcp(
            str(address), port, timeout=self._settings.timeout_seconds / _TRIED_ADDRESSES
        )

    async def _addresses(self, host: str, port: int) -> list[IpAddress]:
        try:
            found = await self._resolve(host, port)
        except OSError:
            found = []
        if not found:
            raise SendingFailed(f"The name {host} is not known.")
        # All of them: a name that leads to both is meant to be let through and then to turn inwards.
        if not self._settings.allow_private_addresses and not all(map(is_public, found)):
            raise SendingFailed(f"The name {host} leads to an address that is not public.")
        return found[:_TRIED_ADDRESSES]


def _told(fault: Exception) -> str:
    if isinstance(fault, httpcore2.TimeoutException):
        return "No connection could be made in time."
    if isinstance(fault, httpcore2.ConnectError):
        return f"No connection could be made: {fault}"[:_ERROR_CHARACTERS]
    if isinstance(fault, httpcore2.ProtocolError):
        return "The answer was not HTTP, or ended early."
    return "The connection broke before an answer came."
