"""Rules of webhooks: which addresses may be posted to, and when a failed attempt is repeated."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

import idna
from msgspec import Struct

from quarterdeck.core import errors
from quarterdeck.core.settings import WebhookSettings
from quarterdeck.webhooks.model import MAX_URL_CHARACTERS, WebhookEvent

IpAddress = IPv4Address | IPv6Address

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
_GLOBAL_UNICAST = IPv6Network("2000::/3")
# Networks that `ipaddress` reports as global in some Python releases: protocol assignments, 6to4 relays, documentation,
# and the address under which Azure hosts serve their guests.
_NOT_PUBLIC = tuple(
    map(ip_network, ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "3fff::/20", "2001:2::/48", "5f00::/16"))
)
_NAT64 = IPv6Network("64:ff9b::/96")
_RETRY_AFTER_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)
_LONGEST_RETRY_AFTER = timedelta(days=1)
_JITTER = 0.1


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


def read_url(url: str, settings: WebhookSettings) -> Target:
    match = _URL.fullmatch(url) if len(url) <= MAX_URL_CHARACTERS else None
    authority = _AUTHORITY.fullmatch(match[2]) if match else None
    if match is None or authority is None or not _TARGET.fullmatch(match[3]):
        raise errors.invalid(
            "url must be https://host/path without user name, fragment, spaces or unencoded characters."
        )
    scheme = match[1].lower()
    if scheme == "http" and not settings.allow_http:
        raise errors.invalid("url must start with https://.")
    port = int(authority[2]) if authority[2] else _PORTS[scheme]
    if port not in _PORTS.values() and not _FIRST_FREE_PORT <= port < 2**16:
        raise errors.invalid(f"url must use port 80, 443 or {_FIRST_FREE_PORT} to 65535.")
    path = match[3] if match[3].startswith("/") else f"/{match[3]}"
    return Target(scheme, _read_host(authority[1], settings), port, path)


def _read_host(text: str, settings: WebhookSettings) -> str:
    host = text.lower()
    if not host.startswith("["):
        host = _read_name(host)
        if not _NUMBER.fullmatch(host.rpartition(".")[2]):
            if not settings.allow_private_addresses and (host == "localhost" or host.endswith(".localhost")):
                raise _not_public()
            return host
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        raise errors.invalid("url must have a valid host name, IPv4 address or IPv6 address in brackets.") from None
    if not settings.allow_private_addresses and not is_public(address):
        raise _not_public()
    return str(address)


def _read_name(text: str) -> str:
    # One dot at the end is the same name; certificates and Host headers do without.
    name = text.removesuffix(".")
    try:
        name = name if name.isascii() else idna.encode(name, uts46=True).decode()
    except idna.IDNAError:
        name = ""
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise errors.invalid("url must have a host.")
    return name


def _not_public() -> Exception:
    return errors.invalid("url must have a public address.")


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


def ordered(events: Iterable[WebhookEvent]) -> list[WebhookEvent]:
    """Without duplicates, in the order of the enum."""
    wanted = set(events)
    return [event for event in WebhookEvent if event in wanted]


def pauses(settings: WebhookSettings) -> list[int]:
    """Seconds to wait after each failed attempt. A delivery fails after one attempt more than there are pauses."""
    return [int(seconds) for seconds in settings.retry_seconds.split(",")]


def pause_after(
    turn: int, settings: WebhookSettings, now: datetime, random: float, retry_after: str | None
) -> timedelta | None:
    """The pause after attempt number `turn`; None if that was the last. `random`, from 0 to 1, adds jitter, so that
    receivers which failed together are not called together."""
    every = pauses(settings)
    if turn > len(every):
        return None
    pause = timedelta(seconds=every[turn - 1]) * (1 + _JITTER * random)
    return max(pause, _asked_pause(retry_after, now))


def _asked_pause(retry_after: str | None, now: datetime) -> timedelta:
    """The pause of a Retry-After header (seconds or a date), one day at most. A malformed header is ignored."""
    asked = timedelta()
    if retry_after is not None and _RETRY_AFTER_SECONDS.fullmatch(retry_after):
        asked = timedelta(seconds=int(retry_after))
    elif retry_after is not None:
        try:
            until = parsedate_to_datetime(retry_after)
            asked = (until if until.tzinfo else until.replace(tzinfo=UTC)) - now
        except (ValueError, OverflowError):
            asked = timedelta()
    return min(asked, _LONGEST_RETRY_AFTER)
