"""Adds deliveries in the transaction that causes the event: each event has its deliveries, and a rolled back event has
none. Workers send them later (`deliveries.py`).
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import msgspec
from msgspec import Struct

from quarterdeck.core.ids import new_id
from quarterdeck.db.database import Connection
from quarterdeck.webhooks import store
from quarterdeck.webhooks.model import TEST_EVENT, NewDelivery, TestData, WebhookEvent, WebhookMessage

subscribers = store.subscribers


async def add_deliveries(
    connection: Connection, webhook_ids: Sequence[UUID], event: WebhookEvent, run_id: UUID, data: Struct
) -> None:
    payload = _encoded(event, data)
    deliveries = [NewDelivery(new_id(), webhook_id, event, run_id, payload) for webhook_id in webhook_ids]
    await store.add_deliveries(connection, deliveries)


async def add_test_delivery(connection: Connection, tested: TestData) -> UUID:
    delivery = NewDelivery(new_id(), tested.webhook_id, TEST_EVENT, None, _encoded(TEST_EVENT, tested))
    await store.add_deliveries(connection, [delivery])
    return delivery.id


def _encoded(event: str, data: Struct) -> bytes:
    return msgspec.json.encode(WebhookMessage(event, datetime.now(UTC), data))
