"""Webhooks whose receivers are in the test's hands, on a server of their own: workers send whatever is due."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest

from tests.receivers import Receiver, receiving
from tests.workers import eventually
from tests.world import PATIENT, Server, World, clone_database, drop_database, serving

LAX = {"WEBHOOK_ALLOW_PRIVATE_ADDRESSES": "true", "WEBHOOK_ALLOW_HTTP": "true"}
# Attempts follow each other at once. None is given up because the machine is busy.
QUICK = LAX | {"WEBHOOK_RETRY_SECONDS": "0,0,1", "WEBHOOK_POLL_SECONDS": 0.1, "WEBHOOK_TIMEOUT_SECONDS": 60}


@pytest.fixture(scope="module")
def own(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("api"), **LAX, **PATIENT) as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture
def server(own: Server) -> Server:
    """Without what earlier tests left."""
    with psycopg.connect(own.database_url, autocommit=True) as connection:
        connection.execute("DELETE FROM app.webhook_deliveries")
        connection.execute("DELETE FROM app.webhooks")
    return own


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


async def create(world: World, url: str, *events: str) -> tuple[str, str]:
    """Its id and its secret."""
    answer = await world.post("/v1/webhooks", {"url": url, "events": events or ["run.succeeded", "run.failed"]})
    assert answer.status_code == 201, answer.text
    return answer.json()["id"], answer.json()["secret"]


async def send_test(world: World, webhook_id: str) -> str:
    answer = await world.post(f"/v1/webhooks/{webhook_id}/test", None)
    assert answer.status_code == 201, answer.text
    delivery_id: str = answer.json()["id"]
    return delivery_id


async def delivery(world: World, webhook_id: str, *states: str) -> dict[str, Any]:
    """The newest delivery, once it is in one of these states."""

    async def look() -> dict[str, Any] | None:
        items = (await world.get(f"/v1/webhooks/{webhook_id}/deliveries?limit=1")).json()["items"]
        return items[0] if items and items[0]["state"] in states else None

    found: dict[str, Any] = await eventually(look)
    return found


async def arrived(receiver: Receiver) -> None:
    """Until an attempt waits for its answer."""

    async def look() -> bool:
        return len(receiver.received) == 1

    await eventually(look)


async def overdue(world: World) -> None:
    """As if the lease of every attempt under way had run out."""
    await world.execute("UPDATE webhook_deliveries SET next_attempt_at = now() WHERE sending")
