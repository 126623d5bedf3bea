"""Which URLs and addresses may be connected to."""

import socket
from ipaddress import ip_address

import pytest

from quarterdeck.core.errors import ServiceError
from quarterdeck.core.setting_types import AddressExceptions
from quarterdeck.outbound.rules import AddressPolicy, OutboundTarget, is_public, read_url

STRICT = AddressPolicy()
LAX = AddressPolicy(allow_private=True, allow_http=True)
EXCEPTIONS = AddressPolicy(exceptions=AddressExceptions.parse("10.0.0.0/8, 127.0.0.0/8, tools.internal:8080, fd00::/8"))


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "127.0.0.1",
        "127.8.8.8",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.1",
        "192.0.2.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "::8.8.8.8",
        "64:ff9b::127.0.0.1",
        "64:ff9b::10.0.0.1",
        "64:ff9b:1::8.8.8.8",
        "100::1",
        "2001::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:808:808::",
        "fc00::1",
        "fd12:3456::1",
        "fe80::1",
        "fe80::1%eth0",
        "2606:4700::1%eth0",
        "fec0::1",
        "ff02::1",
        "ff0e::1",
        "4000::1",
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "8.8.8.8", "93.184.216.34", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"]
)
def test_addresses_that_are(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://example.com", OutboundTarget("https", "example.com", 443, "/")),
        ("HTTPS://Example.COM/Path?q=A%20b", OutboundTarget("https", "example.com", 443, "/Path?q=A%20b")),
        ("https://example.com?x=1", OutboundTarget("https", "example.com", 443, "/?x=1")),
        ("https://example.com.:8443/", OutboundTarget("https", "example.com", 8443, "/")),
        ("https://8.8.8.8/", OutboundTarget("https", "8.8.8.8", 443, "/")),
        ("https://[2606:4700::1111]:1024/", OutboundTarget("https", "2606:4700::1111", 1024, "/")),
        ("https://bücher.example/", OutboundTarget("https", "xn--bcher-kva.example", 443, "/")),
        ("https://例え.テスト/", OutboundTarget("https", "xn--r8jz45g.xn--zckzah", 443, "/")),
        ("https://a_b.example.com/", OutboundTarget("https", "a_b.example.com", 443, "/")),
        ("https://127.0.0.1.example.com/", OutboundTarget("https", "127.0.0.1.example.com", 443, "/")),
    ],
)
def test_addresses_as_they_are_read(url: str, target: OutboundTarget) -> None:
    assert read_url(url, STRICT) == target


def test_host_header_of_an_address() -> None:
    assert read_url("https://example.com:443/", STRICT).authority == "example.com"
    assert read_url("https://example.com:8443/", STRICT).authority == "example.com:8443"
    assert read_url("https://[2606:4700::1111]:8443/", STRICT).authority == "[2606:4700::1111]:8443"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "//example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "https://",
        "https:///path",
        "https://user@example.com/",
        "https://user:pass@example.com/",
        "https://8.8.8.8@127.0.0.1/",
        "https://example.com/#fragment",
        "https://example.com/a b",
        "https://example.com/\r\nX: y",
        "https://example.com/\n",
        "https://example.com\\@127.0.0.1/",
        "https://example.com/é",
        "https://exa mple.com/",
        "https://.example.com/",
        "https://example..com/",
        "https://example.com../",
        "https://-a.example/",
        f"https://{'a' * 64}.example/",
        f"https://{'a.' * 130}example/",
        "https://example.com:/",
        "https://example.com:0/",
        "https://example.com:25/",
        "https://example.com:1023/",
        "https://example.com:65536/",
        "https://example.com:+443/",
        "https://example.com:４４３/",
        "https://[::1/",
        "https://[v1.x]/",
        "https://[fe80::1%25eth0]/",
        "https://1.2.3/",
        "https://1.2.3.4.5/",
        "https://0x7f000001/",
        "https://2130706433/",
        "https://127.1/",
        "https://0177.0.0.1/",
        "https://example.0x1/",
        "https://１２７.0.0.1/",
        "https://example.com/" + "a" * 1981,
    ],
)
@pytest.mark.parametrize("policy", [STRICT, LAX], ids=["strict", "lax"])
def test_invalid_addresses_are_refused_under_all_settings(url: str, policy: AddressPolicy) -> None:
    if url == "https://１２７.0.0.1/" and policy is LAX:
        # Mapped to what it looks like, and that is allowed here.
        assert read_url(url, policy).host == "127.0.0.1"
        return
    with pytest.raises(ServiceError):
        read_url(url, policy)


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/",
        "https://127.0.0.1./",
        "https://10.1.2.3:8080/",
        "https://169.254.169.254/latest/meta-data/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[::ffff:7f00:1]/",
        "https://[fd00::1]/",
        "https://localhost/",
        "https://LOCALHOST./",
        "https://api.localhost/",
        "https://ⓛocalhost/",
    ],
)
def test_private_addresses_need_a_setting(url: str) -> None:
    with pytest.raises(ServiceError, match="public"):
        read_url(url, STRICT)
    read_url(url, LAX)


def test_http_needs_a_setting() -> None:
    with pytest.raises(ServiceError, match="https"):
        read_url("http://example.com/", STRICT)
    assert read_url("http://example.com/", LAX).port == 80


@pytest.mark.parametrize(
    ("url", "is_allowed"),
    [
        ("http://10.1.2.3/", True),
        ("https://10.1.2.3:8443/", True),
        ("http://[fd12::1]:8080/", True),
        ("http://localhost:8080/", True),
        ("http://tools.internal:8080/mcp", True),
        ("https://tools.internal:8080/mcp", True),
        ("https://tools.internal/", True),
        ("http://tools.internal/", False),
        ("http://tools.internal:8081/", False),
        ("http://other.internal:8080/", False),
        ("http://x.tools.internal:8080/", False),
        ("http://8.8.8.8/", False),
        ("https://192.168.1.1/", False),
        ("https://[::1]/", False),
    ],
)
def test_exceptions_allow_private_addresses_and_http(url: str, is_allowed: bool) -> None:
    if is_allowed:
        read_url(url, EXCEPTIONS)
        return
    with pytest.raises(ServiceError, match=r"https|public"):
        read_url(url, EXCEPTIONS)


@pytest.mark.parametrize(
    ("host", "port", "address", "is_allowed"),
    [
        ("any.example", 443, "8.8.8.8", True),
        ("any.example", 443, "10.0.0.1", True),
        ("any.example", 443, "192.168.0.1", False),
        ("tools.internal", 8080, "192.168.0.1", True),
        ("tools.internal", 8081, "192.168.0.1", False),
        ("other.internal", 8080, "192.168.0.1", False),
    ],
)
def test_exceptions_hold_for_what_a_name_resolves_to(host: str, port: int, address: str, is_allowed: bool) -> None:
    assert EXCEPTIONS.allows(host, port, ip_address(address)) is is_allowed


def test_a_url_is_checked_without_asking_a_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise creating a webhook or an MCP server would tell which names exist in the network of the service."""

    def ask(*_: object, **__: object) -> None:
        raise AssertionError("a name server was asked")

    monkeypatch.setattr(socket, "getaddrinfo", ask)
    for name in ("unknown.invalid", "database.internal", "db", "receiver.example.com"):
        assert read_url(f"https://{name}/", STRICT).host == name
