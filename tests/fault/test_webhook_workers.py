"""Deliveries by workers that die, that have little room, that may not go everywhere, and the claim by itself."""

import asyncio
import signal
from contextlib import AsyncExitStack
from uuid import UUID

import pytest

from quarterdeck.core.secret_encryption import KEY_FILE, SecretCipher
from quarterdeck.core.settings import DatabaseSettings, EncryptionSettings, WebhookSettings
from quarterdeck.db.database import Database
from quarterdeck.webhooks.deliveries import DeliverySender
from quarterdeck.webhooks.sender import Sender
from tests.fault.deliveries import QUICK, arrived, create, delivery, overdue, own, receiver, send_test, server
from tests.receivers import Receiver, answering, hanging, receiving, slowly, verify
from tests.workers import ended, eventually, started, take_for_dead, working
from tests.world import Server, World, app_url

__all__ = ["own", "receiver", "server"]

# --- workers that die ---


@pytest.mark.long
async def test_delivery_of_a_killed_worker_is_sent_again(world: World, server: Server) -> None:
    async with receiving(hanging, answering(204)) as receiver:
        webhook_id, secret = await create(world, receiver.url())
        delivery_id = await send_test(world, webhook_id)
        with working(server.database_url, server.data_dir, **QUICK) as first:
            await arrived(receiver)
            first.signal(signal.SIGKILL)
            first.process.wait()
        await overdue(world)
        with working(server.database_url, server.data_dir, **QUICK):
            sent = await delivery(world, webhook_id, "delivered")
    assert (sent["id"], sent["attempts"]) == (delivery_id, 2)
    assert [received.headers["webhook-id"] for received in receiver.received] == [delivery_id] * 2
    assert len({received.body for received in receiver.received}) == 1
    assert all(verify(secret, received.headers, received.body) for received in receiver.received)


@pytest.mark.long
async def test_every_run_is_delivered_while_workers_are_killed(world: World, server: Server) -> None:
    async with receiving() as receiver:
        await create(world, receiver.url(), "run.succeeded", "run.failed")
        sessions = [await world.new_session() for _ in range(6)]
        run_ids = []
        async with AsyncExitStack() as stack:
            for round_ in range(3):
                worker = stack.enter_context(working(server.database_url, server.data_dir, **QUICK))
                run_ids += [(await world.submit(session_id, f"Turn {round_}.")).json() for session_id in sessions]
                await started(world, sessions[0])
                await asyncio.sleep(0.3)
                worker.signal(signal.SIGKILL)
                worker.process.wait()
                await take_for_dead(world)
                await overdue(world)
            stack.enter_context(working(server.database_url, server.data_dir, **QUICK))
            expected = {one["run_id"] for one in run_ids}
            for run_id in expected:
                assert (await ended(world, run_id))["state"] == "succeeded"

            async def all_told() -> bool:
                return expected <= {received.json["data"]["run_id"] for received in receiver.received}

            await eventually(all_told)
    by_run: dict[str, set[str]] = {}
    for received in receiver.received:
        by_run.setdefault(received.json["data"]["run_id"], set()).add(received.headers["webhook-id"])
    assert set(by_run) == expected
    assert all(len(ids) == 1 for ids in by_run.values()), "one event a run, however often it was sent"


@pytest.mark.long
async def test_two_workers_do_not_send_one_delivery_twice(world: World, server: Server) -> None:
    async with receiving(slowly) as receiver:
        webhook_id, _ = await create(world, receiver.url())
        ids = {await send_test(world, webhook_id) for _ in range(40)}
        with (
            working(server.database_url, server.data_dir, **QUICK),
            working(server.database_url, server.data_dir, **QUICK),
        ):

            async def none_left() -> bool:
                return not await world.fetch("SELECT FROM webhook_deliveries WHERE state <> 'delivered'")

            await eventually(none_left)
    assert sorted(received.headers["webhook-id"] for received in receiver.received) == sorted(ids)


@pytest.mark.long
async def test_an_attempt_that_was_overtaken_changes_nothing(world: World, server: Server) -> None:
    """A worker that slept through its lease: the later attempt's outcome stands."""
    answer = asyncio.Event()

    async def late(writer: asyncio.StreamWriter) -> None:
        await answer.wait()
        await answering(500)(writer)

    async with receiving(late) as receiver:
        webhook_id, _ = await create(world, receiver.url())
        await send_test(world, webhook_id)
        with working(server.database_url, server.data_dir, **QUICK) as worker:
            await arrived(receiver)
            await world.execute("UPDATE webhook_deliveries SET attempts = 7, next_attempt_at = now() + interval '1 h'")
            answer.set()

            async def failed() -> bool:
                return "a webhook delivery failed" in worker.log.read_text()

            await eventually(failed)
            # The outcome is stored right after this line, if it is.
            await asyncio.sleep(1)
    (row,) = await world.fetch("SELECT attempts, state, last_error, sending FROM webhook_deliveries")
    assert row == (7, "pending", None, True)


@pytest.mark.long
async def test_deliveries_of_a_deleted_webhook_are_dropped(world: World, server: Server, receiver: Receiver) -> None:
    webhook_id, _ = await create(world, receiver.url())
    await send_test(world, webhook_id)
    await world.http.delete(f"/v1/webhooks/{webhook_id}", headers=world.headers())
    with working(server.database_url, server.data_dir, **QUICK):

        async def gone() -> bool:
            return not await world.fetch("SELECT FROM webhook_deliveries")

        await eventually(gone)
    assert receiver.received == []


@pytest.mark.long
async def test_delivery_due_while_its_webhook_is_disabled_fails(
    world: World, server: Server, receiver: Receiver
) -> None:
    """However much it is, and though only two at a time may go to one host."""
    webhook_id, _ = await create(world, receiver.url())
    for _ in range(40):
        await send_test(world, webhook_id)
    await world.http.patch(f"/v1/webhooks/{webhook_id}", json={"enabled": False}, headers=world.headers())
    # Looks that are far apart: what is given up must not wait for the next.
    seldom = QUICK | {"WEBHOOK_PER_HOST": 2, "WEBHOOK_POLL_SECONDS": 5}
    with working(server.database_url, server.data_dir, **seldom):

        async def none_left() -> bool:
            return not await world.fetch("SELECT FROM webhook_deliveries WHERE state = 'pending'")

        await eventually(none_left)
    rows = await world.fetch("SELECT DISTINCT state, attempts, last_error FROM webhook_deliveries")
    assert rows == [("failed", 0, "The webhook was disabled.")]
    assert receiver.received == []


# --- other settings ---


@pytest.mark.long
async def test_receiver_that_answers_410_is_not_called_again(world: World, server: Server) -> None:
    async with receiving(answering(410)) as receiver:
        webhook_id, _ = await create(world, receiver.url())
        first = await send_test(world, webhook_id)
        with working(server.database_url, server.data_dir, **QUICK, WEBHOOK_CONCURRENCY=1) as worker:
            sent = await delivery(world, webhook_id, "failed")
            webhook = (await world.get(f"/v1/webhooks/{webhook_id}")).json()
            assert (webhook["enabled"], webhook["disabled_reason"]) == (False, "The receiver responded with 410 Gone.")
            assert webhook["revision"] == 2
            receiver.behaviours = [answering(204)]
            enabled = await world.http.patch(
                f"/v1/webhooks/{webhook_id}", json={"enabled": True}, headers=world.headers()
            )
            assert enabled.json()["disabled_reason"] is None
            await world.post(f"/v1/webhooks/{webhook_id}/deliveries/{first}/redeliver", None)
            again = await delivery(world, webhook_id, "delivered")
        assert worker.process.poll() is not None
    assert (sent["attempts"], sent["last_status"]) == (1, 410)
    assert (again["id"], again["attempts"], again["last_error"]) == (first, 2, None)


@pytest.mark.long
async def test_receiver_that_never_answers_times_out(world: World, server: Server) -> None:
    async with receiving(hanging) as receiver:
        webhook_id, _ = await create(world, receiver.url())
        await send_test(world, webhook_id)
        with working(server.database_url, server.data_dir, **(QUICK | {"WEBHOOK_TIMEOUT_SECONDS": 1})):
            sent = await delivery(world, webhook_id, "failed")
            await asyncio.sleep(0.5)
    assert (sent["attempts"], sent["last_status"], sent["next_attempt_at"]) == (4, None, None)
    assert len(receiver.received) == 4, "one and three more"
    assert "No response within 1 seconds" in sent["last_error"]


@pytest.mark.long
async def test_slow_receiver_does_not_delay_others(world: World, server: Server, receiver: Receiver) -> None:
    """It has more deliveries than there are slots; all of one host share its few."""
    async with receiving(hanging) as slow:
        slow_url = f"http://localhost:{slow.port}/"
        slow_ids = [(await create(world, slow_url))[0] for _ in range(2)]
        quick_id, _ = await create(world, receiver.url())
        for _ in range(6):
            for slow_id in slow_ids:
                await send_test(world, slow_id)
        await send_test(world, quick_id)
        slots = {"WEBHOOK_CONCURRENCY": 4, "WEBHOOK_PER_HOST": 2}
        with working(server.database_url, server.data_dir, **(QUICK | slots)):
            await delivery(world, quick_id, "delivered")
            assert len(slow.received) <= 2

            async def two_under_way() -> bool:
                return slow.at_once == 2

            await eventually(two_under_way)
            await asyncio.sleep(1)
        assert slow.most_at_once == 2


@pytest.mark.long
async def test_private_addresses_are_not_called(world: World, server: Server, receiver: Receiver) -> None:
    """The webhook was stored when it was allowed."""
    webhook_id, _ = await create(world, receiver.url())
    await send_test(world, webhook_id)
    strict = QUICK | {"WEBHOOK_ALLOW_PRIVATE_ADDRESSES": "false"}
    unknown_id, _ = await create(world, "http://unknown.invalid/")
    await send_test(world, unknown_id)
    with working(server.database_url, server.data_dir, **strict) as worker:
        sent = await delivery(world, webhook_id, "failed")
        unknown = await delivery(world, unknown_id, "failed")
    assert "could not be reached" in sent["last_error"]
    assert receiver.received == []
    told = [(one["last_error"], one["last_status"], one["duration_ms"]) for one in (sent, unknown)]
    assert told[0] == told[1], "users cannot tell a private address from a name that does not exist"
    assert sent["duration_ms"] is None
    log = worker.log.read_text()
    assert "url must have a public address." in log
    assert "the name unknown.invalid does not resolve" in log


@pytest.mark.long
async def test_worker_without_the_encryption_key_reports_it(world: World, server: Server, receiver: Receiver) -> None:
    webhook_id, _ = await create(world, receiver.url())
    await send_test(world, webhook_id)
    elsewhere = server.data_dir / "elsewhere"
    elsewhere.mkdir()
    with working(server.database_url, elsewhere, **QUICK) as worker:
        sent = await delivery(world, webhook_id, "failed")
        log = worker.log.read_text()
    assert "signing secret cannot be decrypted" in sent["last_error"]
    assert "the secret of a webhook cannot be read" in log
    assert not (elsewhere / KEY_FILE).exists(), "a second key would only hide the fault"
    assert receiver.received == []


# --- the claim, by itself ---


async def test_host_at_its_limit_is_skipped(world: World, server: Server, receiver: Receiver) -> None:
    """However many of its deliveries are due, and longer than others."""
    slow, _ = await create(world, "http://localhost:1024/")
    quick, _ = await create(world, receiver.url())
    await world.execute(
        "INSERT INTO webhook_deliveries (id, webhook_id, event, payload)"
        " SELECT gen_random_uuid(), %s, 'webhook.test', '' FROM generate_series(1, 10000)",
        slow,
    )
    await send_test(world, quick)
    database = Database(app_url(server.database_url), DatabaseSettings())
    settings = WebhookSettings(allow_private_addresses=True, allow_http=True, per_host=2)
    sender = Sender(settings)
    await database.open()
    try:
        deliveries = DeliverySender(database, settings, SecretCipher(EncryptionSettings(), server.data_dir), sender)
        deliveries._busy["localhost"] = 2
        claims, _ = await deliveries._claim()
        assert [claimed.webhook_id for claimed, _ in claims] == [UUID(quick)]
        del deliveries._busy["localhost"]
        claims, _ = await deliveries._claim()
        assert [claimed.webhook_id for claimed, _ in claims] == [UUID(slow)] * 2
    finally:
        sender.close()
        await database.close()


async def test_workspaces_take_turns(world: World, server: Server) -> None:
    """One has more due than there are slots, on many hosts and for an hour; another has one delivery, due just now."""
    crowd = [(await create(world, f"http://host{number}.example.com:1024/"))[0] for number in range(6)]
    other = await World.create(server.database_url, world.http)
    lone, _ = await create(other, "http://lone.example.com:1024/")
    add = (
        "INSERT INTO webhook_deliveries (id, webhook_id, event, payload, next_attempt_at)"
        " SELECT gen_random_uuid(), %s, 'webhook.test', '', now() - %s * interval '1 hour' FROM generate_series(1, %s)"
    )
    for webhook_id in crowd:
        await world.execute(add, webhook_id, 1, 4)
    await world.execute(add, lone, 0, 1)
    database = Database(app_url(server.database_url), DatabaseSettings())
    settings = WebhookSettings(allow_private_addresses=True, allow_http=True, per_host=2, concurrency=8)
    sender = Sender(settings)
    await database.open()
    try:
        claims, _ = await DeliverySender(
            database, settings, SecretCipher(EncryptionSettings(), server.data_dir), sender
        )._claim()
        assert len(claims) == 8
        assert UUID(lone) in {claimed.webhook_id for claimed, _ in claims}
    finally:
        sender.close()
        await database.close()
        await world.execute("DELETE FROM webhook_deliveries WHERE webhook_id = ANY(%s)", [*crowd, lone])
