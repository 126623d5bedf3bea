"""A hostile provider for each test that asks for one; a served site with two of them for each file that asks for it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from tests.openid.hostile_provider import HostileProvider, hostile_provider
from tests.openid.site import Site, Visitor, entry, new_person, role_of, site_server, write_providers
from tests.world import Server, World, clone_database, drop_database, free_port


@pytest.fixture
async def hostile() -> AsyncIterator[HostileProvider]:
    async with hostile_provider() as provider:
        yield provider


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("site")


@pytest.fixture(scope="module")
def site_database_url(postgres_url: str, template: str) -> Iterator[str]:
    url = clone_database(postgres_url, template)
    yield url
    drop_database(postgres_url, url)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hostiles() -> AsyncIterator[list[HostileProvider]]:
    async with hostile_provider() as first, hostile_provider() as second:
        yield [first, second]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site_worlds(site_database_url: str) -> list[World]:
    async with httpx.AsyncClient() as http:
        return [await World.create(site_database_url, http) for _ in range(2)]


@pytest.fixture(scope="module")
def own_server(
    site_database_url: str, folder: Path, hostiles: list[HostileProvider], site_worlds: list[World]
) -> Iterator[Server]:
    roles = [role_of("engineering", site_worlds[0], "member"), role_of("platform", site_worlds[0], "admin")]
    roles.append(role_of("founders", site_worlds[1], "owner"))
    partners = entry(hostiles[1].issuer, title="Partners")
    write_providers(folder, {"corporate": entry(hostiles[0].issuer, roles=roles), "partners": partners})
    with site_server(site_database_url, folder, free_port()) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def site(own_server: Server, site_worlds: list[World], folder: Path) -> AsyncIterator[Site]:
    async with httpx.AsyncClient(base_url=own_server.url, timeout=60) as http:
        for world in site_worlds:
            world.http = http
        yield Site(own_server, site_worlds, folder / "providers.yaml")


@pytest.fixture
def corporate(hostiles: list[HostileProvider]) -> HostileProvider:
    """As a new one, with a person of its own."""
    hostiles[0].reset()
    hostiles[0].claims = new_person()
    return hostiles[0]


@pytest.fixture
def partners(hostiles: list[HostileProvider]) -> HostileProvider:
    hostiles[1].reset()
    hostiles[1].claims = new_person()
    return hostiles[1]


@pytest_asyncio.fixture(loop_scope="module")
async def visitor(site: Site) -> AsyncIterator[Visitor]:
    async with Visitor(site.origin) as visitor:
        yield visitor
