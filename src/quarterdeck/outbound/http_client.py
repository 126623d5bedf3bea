"""HTTP to hosts that callers name: webhooks, token endpoints and MCP servers; and to OpenID providers.

A name is resolved once for each connection, all its addresses are checked, and the connection goes to one of them, so
that a second DNS answer cannot redirect it. No redirects, no proxies, no decompression. Imported late: the HTTP library
takes a tenth of a process's start, and most processes never need it.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from functools import partial
from ipaddress import ip_address
from uuid import UUID

import httpcore2

from quarterdeck.core.slots import Slots
from quarterdeck.outbound.rules import AddressPolicy, IpAddress, OutboundTarget, read_url

# Returns the addresses of a host, in the order to try them. Raises OSError.
Resolve = Callable[[str, int], Awaitable[list[IpAddress]]]

# What a broken or slow connection raises.
NETWORK_ERRORS = (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError, OSError)

_RESOLVER_THREADS = 4
# For a thread. Callers have shorter timeouts of their own.
_THREAD_SECONDS = 120.0
_TRIED_ADDRESSES = 3
_MESSAGE_CHARACTERS = 300


class OutboundError(Exception):
    """Why there was no answer. The text is shown to users, the detail goes to the operator's log."""

    def __init__(self, message: str, detail: str | None = None) -> None:
        super().__init__(message[:_MESSAGE_CHARACTERS])
        self.detail = (detail or message)[:_MESSAGE_CHARACTERS]


class UnreachableError(OutboundError):
    """There was no connection. Users see the same message whatever the reason: otherwise a URL would tell which names
    exist in the network of the service."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            "The host could not be reached: its name does not resolve, its address is not allowed, or it does not "
            "accept connections.",
            detail,
        )


class OutboundClient:
    """For one purpose, with the rules and the timeout of the purpose. `resolve` and `tls` are for tests."""

    def __init__(
        self,
        policy: AddressPolicy,
        seconds: float,
        *,
        threads: int = _RESOLVER_THREADS,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`seconds`: for a whole exchange by `get` or `post`, and for connecting."""
        self.policy = policy
        self._seconds = seconds
        self._resolver = Resolver(threads)
        self._resolve = resolve
        self._tls = tls

    def get(
        self, workspace_id: UUID, url: str, headers: Mapping[str, str], *, field: str = "url"
    ) -> AbstractAsyncContextManager[httpcore2.Response]:
        """As `post`."""
        return self._exchange("GET", workspace_id, url, headers, b"", field)

    def post(
        self, workspace_id: UUID, url: str, headers: Mapping[str, str], body: bytes, *, field: str = "url"
    ) -> AbstractAsyncContextManager[httpcore2.Response]:
        """The response, of which the caller reads as much as it wants before the block ends. Raises OutboundError, and
        ServiceError about `field` if the settings no longer allow the URL."""
        return self._exchange("POST", workspace_id, url, headers, body, field)

    @asynccontextmanager
    async def _exchange(
        self, method: str, workspace_id: UUID, url: str, headers: Mapping[str, str], body: bytes, field: str
    ) -> AsyncIterator[httpcore2.Response]:
        target = read_url(url, self.policy, field=field)
        address = httpcore2.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)
        sent: list[tuple[bytes | str, bytes | str]] = [("Host", target.authority), ("Connection", "close")]
        sent += headers.items()
        try:
            async with (
                asyncio.timeout(self._seconds),
                await self.connections(workspace_id, target, limit=1) as connections,
                connections.stream(method, address, headers=sent, content=body) as response,
            ):
                yield response
        except TimeoutError:
            raise OutboundError(f"No response within {self._seconds:g} seconds.") from None
        except NETWORK_ERRORS as fault:
            raise OutboundError(_message(fault), f"{type(fault).__name__}: {fault}") from fault

    async def connections(
        self, workspace_id: UUID, target: OutboundTarget, *, limit: int, idle_seconds: float | None = None
    ) -> httpcore2.AsyncConnectionPool:
        """For requests to one target. They raise UnreachableError."""
        if self._tls is None and target.scheme == "https":
            # Loading the CA certificates is slow.
            self._tls = await asyncio.to_thread(httpcore2.default_ssl_context)
        resolve = self._resolve or self._resolver.for_workspace(workspace_id)
        return httpcore2.AsyncConnectionPool(
            ssl_context=self._tls,
            max_connections=limit,
            keepalive_expiry=idle_seconds,
            network_backend=_CheckedBackend(self.policy, resolve, self._seconds),
        )

    def close(self) -> None:
        self._resolver.close()


async def read_body(response: httpcore2.Response, max_bytes: int) -> bytes | None:
    """None: it is longer."""
    body = b""
    async with aclosing(response.aiter_stream()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > max_bytes:
                return None
    return body


def _message(fault: Exception) -> str:
    if isinstance(fault, httpcore2.TimeoutException):
        return "The connection timed out."
    if isinstance(fault, httpcore2.ConnectError):
        # Mostly about the certificate.
        return f"The connection failed: {fault}"
    if isinstance(fault, httpcore2.ProtocolError):
        return "The response was invalid or incomplete."
    return "The connection was closed before a response."


class _CheckedBackend(httpcore2.AsyncNetworkBackend):
    def __init__(self, policy: AddressPolicy, resolve: Resolve, seconds: float) -> None:
        """`seconds`: for all addresses of a host together."""
        self._policy = policy
        self._resolve = resolve
        self._seconds = seconds
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
            raise UnreachableError(f"no connection to {addresses[-1]}: {reason}") from fault

    async def _connect(self, address: IpAddress, port: int) -> httpcore2.AsyncNetworkStream:
        # A share of the timeout, so that there is time for the next address.
        return await self._network.connect_tcp(str(address), port, timeout=self._seconds / _TRIED_ADDRESSES)

    async def _addresses(self, host: str, port: int) -> list[IpAddress]:
        try:
            found = await self._resolve(host, port)
        except OSError:
            found = []
        if not found:
            raise UnreachableError(f"the name {host} does not resolve")
        # All must be allowed: a name with public and private addresses is a way around this check.
        refused = [str(address) for address in found if not self._policy.allows(host, port, address)]
        if refused:
            raise UnreachableError(f"the name {host} resolves to addresses that are not public: {', '.join(refused)}")
        return found[:_TRIED_ADDRESSES]


class Resolver:
    """Looks up names in threads of its own: slow lookups delay nothing else. One workspace holds at most half of the
    threads: a name server may take as long as it likes to answer."""

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="resolve")
        self._slots = Slots(threads, max(1, threads // 2))

    def for_workspace(self, workspace_id: UUID) -> Resolve:
        return partial(self._look_up, workspace_id)

    async def _look_up(self, workspace_id: UUID, host: str, port: int) -> list[IpAddress]:
        await self._slots.take(workspace_id, _THREAD_SECONDS)
        looking = asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )

        def ended(_: object) -> None:
            self._slots.release(workspace_id)
            # Read here, in case the caller has left.
            looking.cancelled() or looking.exception()

        looking.add_done_callback(ended)
        # The thread goes on after the caller has left, and keeps its slot: it cannot be stopped.
        found = await asyncio.shield(looking)
        return [ip_address(address[0]) for *_, address in found]

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
