"""Whose address the audit log shows: the other end of the connection, or what a listed proxy says of it."""

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from quarterdeck.core.setting_types import Networks
from quarterdeck.http.request import client_address
from tests.world import TRIES_PER_ADDRESS, Server, World, clone_database, drop_database, serving

PROXIES = Networks.parse("127.0.0.1, 10.0.0.0/8, 2001:db8:aaaa::/48")


def address(*forwarded: str, peer: str = "10.0.0.1", proxies: Networks | None = PROXIES) -> str | None:
    scope = {"client": (peer, 1), "headers": [(b"x-forwarded-for", value.encode()) for value in forwarded]}
    return client_address(scope, proxies)


@pytest.mark.parametrize(
    ("forwarded", "expected"),
    [
        ((), "10.0.0.1"),
        (("",), "10.0.0.1"),
        (("192.0.2.1",), "192.0.2.1"),
        (("192.0.2.1:4711",), "192.0.2.1"),
        (("192.0.2.9, 192.0.2.1",), "192.0.2.1"),
        (("192.0.2.9", "192.0.2.1"), "192.0.2.1"),
        (("192.0.2.1, 10.2.3.4",), "192.0.2.1"),
        (("192.0.2.1", "10.2.3.4,\t10.2.3.5 "), "192.0.2.1"),
        (("10.2.3.4",), "10.2.3.4"),
        (("2001:db8::7",), "2001:db8::7"),
        (("2001:DB8:0::7",), "2001:db8::7"),
        (("[2001:db8::7]",), "2001:db8::7"),
        (("[2001:db8::7]:443",), "2001:db8::7"),
        (("192.0.2.1, [2001:db8:aaaa::1]:443",), "192.0.2.1"),
        (("192.0.2.1, ::ffff:10.2.3.4",), "192.0.2.1"),
        (("::ffff:192.0.2.1",), "192.0.2.1"),
        (("192.0.2.1, nonsense",), "10.0.0.1"),
        (("192.0.2.1, nonsense, 10.2.3.4",), "10.2.3.4"),
        (("192.0.2.1,",), "10.0.0.1"),
        (("unknown",), "10.0.0.1"),
        (("192.0.2.256",), "10.0.0.1"),
        (("192.0.2.1:",), "10.0.0.1"),
        (("192.0.2.1:123456",), "10.0.0.1"),
        (("192.0.2.1/32",), "10.0.0.1"),
        (("fe80::1%eth0",), "10.0.0.1"),
        (("2001:db8::7]:443",), "10.0.0.1"),
        (("[192.0.2.1",), "10.0.0.1"),
        (("3221225985",), "10.0.0.1"),
        (("１９２.0.2.1",), "10.0.0.1"),
    ],
)
def test_behind_a_listed_proxy(forwarded: tuple[str, ...], expected: str) -> None:
    assert address(*forwarded) == expected


@pytest.mark.parametrize("peer", ["192.0.2.77", "2001:db8::77", "unix"])
def test_untrusted_proxies_are_ignored(peer: str) -> None:
    assert address("192.0.2.1", peer=peer) == peer


def test_no_proxy_is_trusted_by_default() -> None:
    assert address("192.0.2.1", proxies=None) == "10.0.0.1"
    assert client_address({"client": None, "headers": []}, None) is None
    assert client_address({"client": None, "headers": []}, PROXIES) is None


def test_proxies_of_either_family_are_listed() -> None:
    assert address("192.0.2.1", peer="2001:db8:aaaa::5") == "192.0.2.1"
    assert address("192.0.2.1", peer="::ffff:10.0.0.1") == "192.0.2.1"


def test_a_long_header_is_read_from_its_end_and_no_further() -> None:
    assert address("192.0.2.1" + ", 10.2.3.4" * 31) == "192.0.2.1"
    assert address("192.0.2.1" + ", 10.2.3.4" * 100_000) == "10.2.3.4"
    assert address("1" * 1_000_000) == "10.0.0.1"
    assert address("," * 1_000_000) == "10.0.0.1"


# --- in the audit log ---


@pytest.fixture(scope="module")
def proxied(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    url = clone_database(postgres_url, template)
    settings = {"HTTP_TRUSTED_PROXIES": "127.0.0.1,10.0.0.0/8"}
    with serving(url, tmp_path_factory.mktemp("proxied"), **settings) as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture
async def behind(proxied: Server) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=proxied.url, timeout=30) as http:
        yield await World.create(proxied.database_url, http)


async def audited(world: World) -> str:
    headers = {"X-Forwarded-For": "198.51.100.1, 192.0.2.1, 10.2.3.4"}
    created = await world.post("/v1/sessions", {}, headers=headers)
    assert created.status_code == 201
    ((found,),) = await world.fetch("SELECT address FROM audit_events WHERE object_id = %s", created.json()["id"])
    assert isinstance(found, str)
    return found


@pytest.mark.long
async def test_address_from_a_trusted_proxy_is_in_the_audit_log(behind: World) -> None:
    assert await audited(behind) == "192.0.2.1"


async def test_address_from_an_untrusted_client_is_not_in_the_audit_log(world: World) -> None:
    assert await audited(world) == "127.0.0.1"


async def test_tries_of_an_ipv6_network_count_together(behind: World) -> None:
    await behind.execute(
        "INSERT INTO sign_in_tries (subject, tries) VALUES (sha256('address:2001:db8::/64'), %s)", TRIES_PER_ADDRESS
    )
    for address, status in (("2001:db8::5", 429), ("2001:db8:0:1::5", 404)):
        headers = {"X-Forwarded-For": address}
        answer = await behind.http.post("/v1/invitations/look-up", json={"token": "x"}, headers=headers)
        assert answer.status_code == status
