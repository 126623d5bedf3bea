"""Which IP addresses may be connected to."""

import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

import idna
from msgspec import Struct

from quarterdeck.core import errors
from quarterdeck.core.setting_types import AddressExceptions
from quarterdeck.core.text_types import MAX_URL_CHARACTERS

IpAddress = IPv4Address | IPv6Address

_GLOBAL_UNICAST = IPv6Network("2000::/3")
# Networks that `ipaddress` reports as global in some Python releases: protocol assignments, 6to4 relays, documentation,
# and the address under which Azure hosts serve their guests.
_NOT_PUBLIC = tuple(
    map(ip_network, ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "3fff::/20", "2001:2::/48", "5f00::/16"))
)
_NAT64 = IPv6Network("64:ff9b::/96")


class AddressPolicy(Struct, frozen=True):
    """What the operator allows. By default: https to public addresses."""

    allow_http: bool = False
    allow_private: bool = False
    # Private addresses that are allowed nevertheless, with http too.
    exceptions: AddressExceptions | None = None

    def allows(self, host: str, port: int, address: IpAddress) -> bool:
        """Whether a connection to this address of the host is allowed."""
        return self.allow_private or is_public(address) or self.is_exception(host, port, address)

    def is_exception(self, host: str, port: int, address: IpAddress | None) -> bool:
        """Without an address, only the entry host:port counts: a name is not resolved to find out."""
        if self.exceptions is None:
            return False
        if address is None:
            return f"{host}:{port}" in self.exceptions
        return self.exceptions.allow(host, port, address)


def is_public(address: IpAddress) -> bool:
    """Whether the address is public, and also the IPv4 address that it may embed."""
    if any(address.version == network.version and address in network for network in _NOT_PUBLIC):
        return False
    if isinstance(address, IPv4Address):
        return address.is_global and not (address.is_multicast or address.is_reserved)
    if address.scope_id is not None:
        return False
    if address.ipv4_mapped is not None:
        return is_public(address.ipv4_mapped)
    if address in _NAT64:
        return is_public(IPv4Address(address.packed[-4:]))
    # 6to4 and Teredo tunnels lead to IPv4 addresses through unknown gateways.
    tunnel = address.sixtofour is not None or address.teredo is not None
    return address in _GLOBAL_UNICAST and address.is_global and not tunnel


# Reads URLs that callers name. Names are not resolved here: that would tell which names exist in the network of the
# service.

_URL = re.compile(r"(https?)://([^/?#]*)((?:/[^?#]*)?(?:\?[^#]*)?)", re.IGNORECASE | re.ASCII)
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:@]+)(?::([0-9]{1,5}))?", re.IGNORECASE | re.ASCII)
# Characters of path and query (RFC 3986). Others must be percent-encoded.
_TARGET = re.compile(r"[A-Za-z0-9\-._~:/?\[\]@!$&'()*+,;=%]*", re.ASCII)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
# Resolvers also accept 127.1, 0x7f000001 and 017700000001 as addresses. Here only four decimal numbers are one.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_PORTS = {"http": 80, "https": 443}
# Lower ports belong to mail, shells, name servers and similar services.
_FIRST_FREE_PORT = 1024
_LOOPBACK = IPv4Address("127.0.0.1")


class OutboundTarget(Struct, frozen=True):
    """The parts of a URL. `host` is lower-case ASCII; an IPv6 address has no brackets."""

    scheme: str
    host: str
    port: int
    # Path and query.
    path: str

    @property
    def authority(self) -> str:
        """For the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def read_url(url: str, policy: AddressPolicy, *, field: str = "url") -> OutboundTarget:
    """Raises ServiceError with a message about `field`."""
    match = _URL.fullmatch(url) if len(url) <= MAX_URL_CHARACTERS else None
    authority = _AUTHORITY.fullmatch(match[2]) if match else None
    if match is None or authority is None or not _TARGET.fullmatch(match[3]):
        raise errors.invalid(
            f"{field} must be https://host/path without user name, fragment, spaces or unencoded characters."
        )
    scheme = match[1].lower()
    port = int(authority[2]) if authority[2] else _PORTS[scheme]
    if port not in _PORTS.values() and not _FIRST_FREE_PORT <= port < 2**16:
        raise errors.invalid(f"{field} must use port 80, 443 or {_FIRST_FREE_PORT} to 65535.")
    host, address = _read_host(authority[1], field)
    is_exception = policy.is_exception(host, port, address)
    if scheme == "http" and not (policy.allow_http or is_exception):
        raise errors.invalid(f"{field} must start with https://.")
    if address is not None and not (is_exception or policy.allows(host, port, address)):
        raise errors.invalid(f"{field} must have a public address.")
    path = match[3] if match[3].startswith("/") else f"/{match[3]}"
    return OutboundTarget(scheme, host, port, path)


def _read_host(text: str, field: str) -> tuple[str, IpAddress | None]:
    """The host, and the address that it is known to have."""
    host = text.lower()
    if not host.startswith("["):
        host = _read_name(host, field)
        if not _NUMBER.fullmatch(host.rpartition(".")[2]):
            is_local = host == "localhost" or host.endswith(".localhost")
            return host, _LOOPBACK if is_local else None
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        raise errors.invalid(
            f"{field} must have a host name, an IPv4 address, or an IPv6 address in brackets."
        ) from None
    return str(address), address


def _read_name(text: str, field: str) -> str:
    # One dot at the end is the same name; certificates and Host headers do without.
    name = text.removesuffix(".")
    try:
        name = name if name.isascii() else idna.encode(name, uts46=True).decode()
    except idna.IDNAError:
        name = ""
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise errors.invalid(f"{field} must have a host.")
    return name
