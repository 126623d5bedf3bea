"""Deliveries to receivers that behave and that do not: what was put down arrives at least once, under one id, and
signed. One worker for all; those of other settings are in test_webhook_workers.py."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from tests.fault.deliveries import QUICK, create, delivery, own, receiver, send_test, server
from tests.receivers import Behaviour, Receiver, answering, babbling, flooding, receiving, resetting, verify
from tests.workers import Worker, ended, eventually, working
from tests.world import Server, World

__all__ = ["own", "receiver", "server"]


@pytest.fixture(scope="module", autouse=True)
def worker(own: Server) -> Iterator[Worker]:
    with working(own.database_url, own.data_dir, **QUICK) as worker:
        yield worker


@pytest.mark.parametrize(
    ("text", "event", "state"),
    [("Hello.", "run.succeeded", "succeeded"), ("demo: fail", "run.failed", "failed")],
    ids=["succeeded", "failed"],
)
async def test_ended_run_is_delivered(
    world: World, server: Server, worker: Worker, receiver: Receiver, text: str, event: str, state: str
) -> None:
    webhook_id, secret = await create(world, receiver.url())
    session_id = await world.new_session()
    run_id = (await world.submit(session_id, text)).json()["run_id"]
    run = await ended(world, run_id)
    sent = await delivery(world, webhook_id, "delivered")
    (received,) = receiver.received
    assert (sent["run_id"], sent["event"], sent["attempts"], sent["last_status"]) == (run_id, event, 1, 204)
    assert received.headers["webhook-id"] == sent["id"]
    assert abs(int(received.headers["webhook-timestamp"]) - time.time()) < 60
    assert received.path == "/hook?token=shh"
    assert verify(secret, received.headers, received.body)
    assert not verify(secret, received.headers, received.body + b" ")
    message = received.json
    assert message["type"] == event
    data = message["data"]
    assert (data["run_id"], data["session_id"], data["state"]) == (run_id, session_id, state)
    assert (data["failure"], data["usage"], data["steps"]) == (run["failure"], run["usage"], run["steps"])
    logs = worker.log.read_text() + server.log.read_text()
    assert "token=shh" not in logs
    assert secret not in logs


async def test_both_secrets_sign_until_the_overlap_ends(world: World, receiver: Receiver) -> None:
    webhook_id, old = await create(world, receiver.url())
    rotated = await world.post(f"/v1/webhooks/{webhook_id}/rotate-secret", {"overlap_seconds": 3600})
    new = rotated.json()["secret"]
    await send_test(world, webhook_id)
    await delivery(world, webhook_id, "delivered")
    await world.execute("UPDATE webhooks SET previous_secret_expires_at = now()")
    await send_test(world, webhook_id)
    await delivery(world, webhook_id, "delivered")
    both, one = receiver.received
    assert len(both.headers["webhook-signature"].split(" ")) == 2
    assert verify(old, both.headers, both.body)
    assert verify(new, both.headers, both.body)
    assert not verify(old, one.headers, one.body)
    assert verify(new, one.headers, one.body)
    assert both.json["type"] == "webhook.test"


# --- receivers that misbehave ---


async def test_retries_have_the_same_id_and_bytes(world: World) -> None:
    async with receiving(answering(500), answering(503, "Retry-After: 1\r\n"), answering(200)) as receiver:
        webhook_id, secret = await create(world, receiver.url())
        delivery_id = await send_test(world, webhook_id)
        sent = await delivery(world, webhook_id, "delivered")
    assert (sent["id"], sent["attempts"], sent["last_status"], sent["last_error"]) == (delivery_id, 3, 200, None)
    assert [received.headers["webhook-id"] for received in receiver.received] == [delivery_id] * 3
    assert len({received.body for received in receiver.received}) == 1
    assert all(verify(secret, received.headers, received.body) for received in receiver.received)


@pytest.mark.long
@pytest.mark.parametrize(
    ("behaviour", "status", "error"),
    [
        (answering(500), 500, "responded with 500"),
        (answering(400), 400, "responded with 400"),
        (answering(302, "Location: https://example.com/\r\n"), 302, "responded with 302"),
        (resetting, None, "closed|incomplete"),
        (babbling, None, "invalid"),
    ],
    ids=["500", "400", "302", "resetting", "babbling"],
)
async def test_delivery_fails_after_the_last_attempt(
    world: World, worker: Worker, behaviour: Behaviour, status: int | None, error: str
) -> None:
    said_before = len(worker.log.read_text())
    async with receiving(behaviour) as receiver:
        webhook_id, _ = await create(world, receiver.url())
        await send_test(world, webhook_id)
        sent = await delivery(world, webhook_id, "failed")
        await asyncio.sleep(0.5)
    assert (sent["attempts"], sent["last_status"], sent["next_attempt_at"]) == (4, status, None)
    assert len(receiver.received) == 4, "one and three more"
    assert any(part in sent["last_error"] for part in error.split("|")), sent["last_error"]
    assert sent["duration_ms"] >= 0
    said = worker.log.read_text()[said_before:]
    assert '"host":"127.0.0.1"' in said
    assert "token=shh" not in said


async def test_endless_response_body_is_cut(world: World) -> None:
    async with receiving(flooding) as receiver:
        webhook_id, _ = await create(world, receiver.url())
        await send_test(world, webhook_id)
        assert (await delivery(world, webhook_id, "delivered"))["last_status"] == 200


@pytest.mark.long
async def test_webhook_that_fails_for_days_is_disabled(world: World) -> None:
    async with receiving(answering(500), answering(200), answering(500)) as receiver:
        webhook_id, _ = await create(world, receiver.url())
        await send_test(world, webhook_id)
        await delivery(world, webhook_id, "delivered")

        async def forgiven() -> bool:
            return await world.fetch("SELECT failing_since FROM webhooks") == [(None,)]

        await eventually(forgiven)
        await world.execute("UPDATE webhooks SET failing_since = now() - interval '6 days'")
        await send_test(world, webhook_id)
        sent = await delivery(world, webhook_id, "failed")
    webhook = (await world.get(f"/v1/webhooks/{webhook_id}")).json()
    assert (webhook["enabled"], webhook["disabled_reason"]) == (False, "No delivery has succeeded for 5 days.")
    assert sent["last_error"] == "The webhook was disabled."
