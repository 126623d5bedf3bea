"""Which IP addresses may be connected to."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_network

from msgspec import Struct

from quarterdeck.core.setting_types import AddressExceptions

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
