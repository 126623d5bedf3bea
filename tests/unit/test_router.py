"""Which endpoint a path leads to, and what its segments are called."""

import asyncio

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope

from quarterdeck.errors import Kind, ServiceError
from quarterdeck.http.endpoint import Endpoint
from quarterdeck.http.router import Router

PATHS = ("/", "/v1/runs", "/v1/runs/{run_id}", "/v1/runs/{run_id}/cancel", "/assets/{hash}/{name:path}")


def follow(path: str, raw_path: str | None = None) -> tuple[str, dict[str, str]]:
    """The path of the endpoint that answered, and the parameters that it was given."""
    found: list[tuple[str, dict[str, str]]] = []

    def endpoint(of: str) -> Endpoint:
        async def respond(scope: Scope, _: Receive) -> Response:
            found.append((of, scope["path_params"]))
            return Response()

        return Endpoint({"GET": respond})

    async def nothing(_: object = None) -> None:
        return None

    scope: Scope = {"type": "http", "method": "GET", "path": path, "raw_path": (raw_path or path).encode()}
    asyncio.run(Router({path: endpoint(path) for path in PATHS})(scope, nothing, nothing))  # type: ignore[arg-type]
    return found[0]


@pytest.mark.parametrize(
    ("path", "of", "parameters"),
    [
        ("/", "/", {}),
        ("/v1/runs", "/v1/runs", {}),
        ("/v1/runs/7", "/v1/runs/{run_id}", {"run_id": "7"}),
        ("/v1/runs/7/cancel", "/v1/runs/{run_id}/cancel", {"run_id": "7"}),
        ("/v1/runs/cancel", "/v1/runs/{run_id}", {"run_id": "cancel"}),
        ("/assets/a/b.js", "/assets/{hash}/{name:path}", {"hash": "a", "name": "b.js"}),
        ("/assets/a/b/c.js", "/assets/{hash}/{name:path}", {"hash": "a", "name": "b/c.js"}),
        ("/assets/a/", "/assets/{hash}/{name:path}", {"hash": "a", "name": ""}),
    ],
)
def test_a_path_leads_to_its_endpoint(path: str, of: str, parameters: dict[str, str]) -> None:
    assert follow(path) == (of, parameters)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "//",
        "/v1",
        "/v1/",
        "/v1/runs/",
        "/v1/runs\n",
        "/V1/runs",
        "/v1/runs//cancel",
        "/v1/runs/7/cancel/",
        "/assets/a",
    ],
)
def test_any_other_leads_nowhere(path: str) -> None:
    with pytest.raises(ServiceError) as refused:
        follow(path)
    assert refused.value.kind is Kind.NOT_FOUND


def test_an_encoded_slash_is_no_way_to_another_path() -> None:
    with pytest.raises(ServiceError) as refused:
        follow("/v1/runs/7", "/v1%2Fruns/7")
    assert refused.value.kind is Kind.NOT_FOUND
