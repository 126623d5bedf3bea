"""Reads URLs that callers name. Names are not resolved here: that would tell which names exist in the network of the
service."""

import re
from ipaddress import IPv4Address, ip_address

import idna
from msgspec import Struct

from quarterdeck.core import errors
from quarterdeck.core.text_types import MAX_URL_CHARACTERS
from quarterdeck.outbound.rules import AddressPolicy, IpAddress

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


class Target(Struct, frozen=True):
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


def read_url(url: str, policy: AddressPolicy, *, field: str = "url") -> Target:
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
    return Target(scheme, host, port, path)


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
