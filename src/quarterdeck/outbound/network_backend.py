"""Connects to hosts that callers named. The name is resolved once for each connection, all its addresses are checked,
and the connection goes to one of them, so that a second DNS answer cannot redirect it.
"""

from collections.abc import Iterable
from contextlib import suppress

import httpcore2

from quarterdeck.outbound.resolver import Resolve
from quarterdeck.outbound.rules import AddressPolicy, IpAddress

_TRIED_ADDRESSES = 3
_DETAIL_CHARACTERS = 300


class UnreachableError(Exception):
    """There was no connection. Users see the same message whatever the reason: otherwise a URL would tell which names
    exist in the network of the service. The detail goes to the operator's log."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            "The host could not be reached: its name does not resolve, its address is not allowed, or it does not "
            "accept connections."
        )
        self.detail = detail[:_DETAIL_CHARACTERS]


class CheckedBackend(httpcore2.AsyncNetworkBackend):
    """For the connections and pools of httpcore2. Raises UnreachableError."""

    def __init__(self, policy: AddressPolicy, resolve: Resolve, *, timeout_seconds: float) -> None:
        """`timeout_seconds`: for all addresses of a host together."""
        self._policy = policy
        self._resolve = resolve
        self._timeout_seconds = timeout_seconds
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
        return await self._network.connect_tcp(str(address), port, timeout=self._timeout_seconds / _TRIED_ADDRESSES)

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
