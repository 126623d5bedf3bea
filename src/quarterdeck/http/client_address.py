"""The client's address: the peer of the connection or, if the peer is a trusted proxy, the address in X-Forwarded-For.
Anybody can send that header, so only the part that trusted proxies wrote is used."""

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address

from starlette.datastructures import Headers
from starlette.types import Scope

from quarterdeck.core.setting_types import Networks

Address = IPv4Address | IPv6Address

# Each proxy adds one entry. The limit bounds the cost of a long header.
_MOST_ENTRIES = 32
# With or without a port. An IPv6 address may be in brackets and must be if a port follows. Zones are not accepted.
_ENTRY = re.compile(r"(?:\[([0-9a-fA-F:.]{2,45})\]|([0-9.]{7,15}))(?::[0-9]{1,5})?|([0-9a-fA-F:.]{2,45})", re.ASCII)


def client_address(scope: Scope, proxies: Networks | None) -> str | None:
    client = scope.get("client")
    if client is None or not proxies:
        return None if client is None else client[0]
    peer = _parsed(client[0])
    if peer is None or not _trusted(peer, proxies):
        return str(client[0])
    nearest = peer
    for entry in _entries(scope):
        address = _parsed(entry)
        if address is None:
            break
        nearest = address
        if not _trusted(address, proxies):
            break
    return str(nearest)


def _entries(scope: Scope) -> Iterable[str]:
    """Nearest proxy first."""
    values = Headers(scope=scope).getlist("x-forwarded-for")
    return reversed(",".join(values).rsplit(",", _MOST_ENTRIES)[-_MOST_ENTRIES:])


def _parsed(text: str) -> Address | None:
    match = _ENTRY.fullmatch(text.strip(" \t"))
    if match is None:
        return None
    try:
        address = ip_address(match[1] or match[2] or match[3])
    except ValueError:
        return None
    # A dual-stack socket reports IPv4 peers as IPv4-mapped IPv6 addresses.
    return getattr(address, "ipv4_mapped", None) or address


def _trusted(address: Address, proxies: Networks) -> bool:
    return any(address in network for network in proxies)
