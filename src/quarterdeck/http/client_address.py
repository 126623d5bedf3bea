"""Where a request came from: the other end of its connection or, if that is a proxy that the operator lists, what the
proxy says in X-Forwarded-For. Anybody can send that header; only the part that listed proxies wrote is believed."""

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address

from starlette.types import Scope

from quarterdeck.core.settings import Networks
from quarterdeck.http.headers import headers_of

Address = IPv4Address | IPv6Address

# Each proxy adds one. Nobody has more of them in a row, and a header of any length costs no more than this.
_MOST_ENTRIES = 32
# With a port or without. An IPv6 address with a port, and some without, are in brackets. Zones mean nothing elsewhere.
_ENTRY = re.compile(r"(?:\[([0-9a-fA-F:.]{2,45})\]|([0-9.]{7,15}))(?::[0-9]{1,5})?|([0-9a-fA-F:.]{2,45})", re.ASCII)


def client_address(scope: Scope, proxies: Networks | None) -> str | None:
    client = scope.get("client")
    if client is None or not proxies:
        return None if client is None else client[0]
    peer = _parsed(client[0])
    if peer is None or not _listed(peer, proxies):
        return str(client[0])
    nearest = peer
    for entry in _entries(scope):
        address = _parsed(entry)
        if address is None:
            break
        nearest = address
        if not _listed(address, proxies):
            break
    return str(nearest)


def _entries(scope: Scope) -> Iterable[str]:
    """From the nearest on."""
    values = [value.decode("latin-1") for value in headers_of(scope).all(b"x-forwarded-for")]
    return reversed(",".join(values).rsplit(",", _MOST_ENTRIES)[-_MOST_ENTRIES:])


def _parsed(text: str) -> Address | None:
    match = _ENTRY.fullmatch(text.strip(" \t"))
    if match is None:
        return None
    try:
        address = ip_address(match[1] or match[2] or match[3])
    except ValueError:
        return None
    # A socket that takes both families shows IPv4 inside IPv6.
    return getattr(address, "ipv4_mapped", None) or address


def _listed(address: Address, proxies: Networks) -> bool:
    return any(address in network for network in proxies)
