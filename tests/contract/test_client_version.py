"""Our own clients below the minimum are told to upgrade, before anything else is looked at. Nobody else is."""

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from quarterdeck.api.routes import OPERATIONS
from tests.raw_http import exchange
from tests.raw_http import request as raw_request
from tests.world import Server, World, clone_database, drop_database, error_of, serving

OLD = {"Quarterdeck-Client": "quarterdeck-python/1.9.9"}


@pytest.fixture(scope="module")
def newer(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that serves clients from 1.10.0 on."""
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("newer"), HTTP_MIN_CLIENT_VERSION="1.10.0") as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture
async def new_world(newer: Server) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=newer.url, timeout=30) as http:
        yield await World.create(newer.database_url, http)


TOO_OLD = [
    "quarterdeck-python/1.9.9",
    "quarterdeck-python/1.9",
    "quarterdeck-python/0",
    "quarterdeck-cli/1.9.99999 (linux)",
    "quarterdeck-python/1.9rc1",
    "quarterdeck-python/1.9.0.dev3",
    "quarterdeck-python/0.0.0.0.5",
]
ACCEPTED = [
    "quarterdeck-python/1.10",
    "quarterdeck-python/1.10.0",
    "quarterdeck-python/1.10rc1",
    "quarterdeck-python/2",
    "quarterdeck-python/10.0.1",
    "quarterdeck-python/999999999.999999999",
    "other/0.1",
    "my-quarterdeck-python/0.1",
    "quarterdeck/0.1",
    "Quarterdeck-Python/0.1",
    "quarterdeck-python",
    "quarterdeck-python/",
    "quarterdeck-python/x",
    "quarterdeck-python/.1",
    "quarterdeck-python/-1",
    "quarterdeck-python/1234567890",
    "quarterdeck-python/" + "0" * 5000,
    "",
]


@pytest.mark.long
async def test_old_clients_of_ours_are_refused(new_world: World) -> None:
    for client in TOO_OLD:
        answer = await new_world.get("/v1/api-keys", headers={"Quarterdeck-Client": client})
        assert error_of(answer) == (426, "client_outdated"), client
        assert "pip install --upgrade quarterdeck" in answer.json()["error"]["message"]
        assert "1.10" in answer.json()["error"]["message"]


async def test_new_and_foreign_clients_are_served(new_world: World) -> None:
    for client in ACCEPTED:
        headers = {"Quarterdeck-Client": client, "Service-Workspace": str(new_world.workspace_id)}
        assert (await new_world.get("/v1/api-keys", headers=headers)).status_code == 200, client[:40]


def test_a_repeated_or_undecodable_header_is_ignored(newer: Server) -> None:
    line = "Quarterdeck-Client: quarterdeck-python/0.1"
    assert exchange(newer.port, raw_request("GET", "/v1/api-keys", line, line)).error() == (401, "unauthorized")
    assert exchange(newer.port, raw_request("GET", "/v1/api-keys", line)).error() == (426, "client_outdated")
    assert exchange(newer.port, raw_request("GET", "/v1/api-keys", b"Quarterdeck-Client: \xff")).status == 401


async def test_the_version_is_checked_before_the_credential(new_world: World) -> None:
    for operation in OPERATIONS:
        ids = dict.fromkeys([*operation.path_ids, *operation.path_numbers], "nonsense")
        answer = await new_world.http.request(operation.method, operation.path.format(**ids), headers=OLD)
        assert error_of(answer) == (426, "client_outdated"), operation.name
        assert "ratelimit" not in answer.headers


async def test_the_version_is_checked_after_route_and_method(new_world: World) -> None:
    assert error_of(await new_world.get("/v1/nowhere", headers=OLD)) == (404, "not_found")
    assert (await new_world.http.put("/v1/sessions", headers=OLD)).status_code == 405
    for path in ("/healthz", "/readyz", "/openapi.json", "/docs"):
        assert (await new_world.http.get(path, headers=OLD)).status_code == 200


async def test_by_default_every_client_is_served(world: World) -> None:
    headers = {"Quarterdeck-Client": "quarterdeck-python/0.0.0", "Service-Workspace": str(world.workspace_id)}
    assert (await world.get("/v1/api-keys", headers=headers)).status_code == 200
