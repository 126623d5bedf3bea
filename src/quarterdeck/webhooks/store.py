"""SQL of webhooks. Secrets are encrypted before they get here."""

from collections.abc import Sequence
from uuid import UUID

from msgspec.structs import astuple

from quarterdeck.db.database import Connection
from quarterdeck.db.records import Pages, Records, fetch_column, fetch_int
from quarterdeck.db.walks import BatchResult, fetch_step
from quarterdeck.webhooks.model import (
    Claimed,
    DeliveryOutcome,
    DeliveryState,
    NewDelivery,
    NewWebhook,
    Receiver,
    WebhookBody,
    WebhookDeliveryBody,
    WebhookEvent,
)

_LOCK_WORKSPACE = "SELECT pg_advisory_xact_lock(webhooks_lock(%s))"
_COUNT = "SELECT count(*) FROM webhooks WHERE workspace_id = %s"
_ADD = """
INSERT INTO webhooks (id, workspace_id, url, host, events, description, secret, created_by)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
"""
_WEBHOOKS = Records(
    WebhookBody,
    table="webhooks",
    columns="""r.id, r.url, r.events, r.description, r.enabled, r.disabled_reason, r.previous_secret_expires_at,
        r.revision, actor(u) AS created_by""",
    joins="JOIN users u ON u.id = r.created_by",
)
get, page = _WEBHOOKS.get, _WEBHOOKS.page
_LOCK = "SELECT FROM webhooks WHERE workspace_id = %s AND id = %s FOR UPDATE"
# A change restarts the period after which a failing webhook is disabled.
_CHANGE = """
UPDATE webhooks
SET url = %s, host = coalesce(%s, host), events = %s, description = %s, enabled = %s, disabled_reason = %s,
    failing_since = NULL, revision = revision + 1
WHERE workspace_id = %s AND id = %s
"""
_ROTATE = """
UPDATE webhooks
SET previous_secret = CASE WHEN %s > 0 THEN secret END,
    previous_secret_expires_at = CASE WHEN %s > 0 THEN clock_timestamp() + make_interval(secs => %s) END,
    secret = %s, revision = revision + 1
WHERE workspace_id = %s AND id = %s
"""
_DELETE = "DELETE FROM webhooks WHERE workspace_id = %s AND id = %s"
_SUBSCRIBERS = "SELECT id FROM webhooks WHERE workspace_id = %s AND enabled AND %s = ANY(events)"
_RECEIVERS = """
SELECT id, workspace_id, url, host, enabled, secret,
       CASE WHEN previous_secret_expires_at > clock_timestamp() THEN previous_secret END
FROM webhooks WHERE id = ANY(%s)
"""
_NOTE_SUCCESS = "UPDATE webhooks SET failing_since = NULL WHERE id = %s AND failing_since IS NOT NULL"
_NOTE_FAILURE = "UPDATE webhooks SET failing_since = clock_timestamp() WHERE id = %s AND failing_since IS NULL"
# Only if the URL is still the one that failed.
_DISABLE = """
UPDATE webhooks SET enabled = false, disabled_reason = %s, revision = revision + 1
WHERE id = %s AND url = %s AND enabled
"""
_DISABLE_FAILING = """
UPDATE webhooks SET enabled = false, disabled_reason = %s, revision = revision + 1
WHERE id = %s AND url = %s AND enabled AND failing_since < clock_timestamp() - make_interval(days => %s)
"""
_SECRETS = "SELECT id, secret, previous_secret FROM webhooks ORDER BY id FOR UPDATE"
_SET_SECRETS = "UPDATE webhooks SET secret = %s, previous_secret = %s WHERE id = %s"


async def lock_workspace(connection: Connection, workspace_id: UUID) -> None:
    await connection.execute(_LOCK_WORKSPACE, (workspace_id,))


async def count(connection: Connection, workspace_id: UUID) -> int:
    return await fetch_int(connection, _COUNT, (workspace_id,))


async def add(connection: Connection, webhook: NewWebhook) -> None:
    await connection.execute(_ADD, astuple(webhook))


async def lock(connection: Connection, workspace_id: UUID, webhook_id: UUID) -> None:
    """A separate statement, so that the next read sees what the previous holder of the lock committed."""
    await connection.execute(_LOCK, (workspace_id, webhook_id))


async def change(connection: Connection, workspace_id: UUID, webhook: WebhookBody, host: str | None) -> None:
    """Store URL, events, description and state of `webhook`. `host` is None if the URL stays."""
    events = [str(event) for event in webhook.events]
    state = (webhook.enabled, webhook.disabled_reason)
    values = (webhook.url, host, events, webhook.description, *state)
    await connection.execute(_CHANGE, (*values, workspace_id, webhook.id))


async def rotate(
    connection: Connection, workspace_id: UUID, webhook_id: UUID, secret: bytes, overlap_seconds: int
) -> None:
    overlap = (overlap_seconds, overlap_seconds, overlap_seconds)
    await connection.execute(_ROTATE, (*overlap, secret, workspace_id, webhook_id))


async def delete(connection: Connection, workspace_id: UUID, webhook_id: UUID) -> None:
    await connection.execute(_DELETE, (workspace_id, webhook_id))


async def subscribers(connection: Connection, workspace_id: UUID, event: WebhookEvent) -> list[UUID]:
    return await fetch_column(connection, _SUBSCRIBERS, (workspace_id, event))


async def receivers(connection: Connection, webhook_ids: list[UUID]) -> dict[UUID, Receiver]:
    rows = await (await connection.execute(_RECEIVERS, (webhook_ids,))).fetchall()
    return {
        webhook_id: Receiver(*(webhook_id, *fields, [one for one in (secret, previous) if one is not None]))
        for webhook_id, *fields, secret, previous in rows
    }


async def note_success(connection: Connection, webhook_id: UUID) -> None:
    await connection.execute(_NOTE_SUCCESS, (webhook_id,))


async def note_failure(connection: Connection, webhook_id: UUID) -> None:
    await connection.execute(_NOTE_FAILURE, (webhook_id,))


async def disable(connection: Connection, receiver: Receiver, reason: str) -> None:
    await connection.execute(_DISABLE, (reason, receiver.id, receiver.url))


async def disable_failing(connection: Connection, receiver: Receiver, reason: str, days: int) -> None:
    """Disable the webhook if nothing was delivered for `days`."""
    await connection.execute(_DISABLE_FAILING, (reason, receiver.id, receiver.url, days))


async def encrypted_secrets(connection: Connection) -> list[tuple[UUID, bytes, bytes | None]]:
    return await (await connection.execute(_SECRETS)).fetchall()


async def set_secrets(connection: Connection, webhook_id: UUID, secret: bytes, previous: bytes | None) -> None:
    await connection.execute(_SET_SECRETS, (secret, previous, webhook_id))


_ADD_DELIVERY = "INSERT INTO webhook_deliveries (id, webhook_id, event, run_id, payload) VALUES (%s, %s, %s, %s, %s)"
_DELIVERY_COLUMNS = """r.id, r.webhook_id, r.event, r.run_id, r.state, r.attempts, r.last_status, r.last_error,
    r.duration_ms, r.delivered_at, CASE r.state WHEN 'pending' THEN r.next_attempt_at END AS next_attempt_at"""
_DELIVERIES = Records(
    WebhookDeliveryBody,
    table="webhook_deliveries",
    scope="webhook_id",
    columns=_DELIVERY_COLUMNS,
)
# The state is part of the bounds and of the order, so that only the index that begins with both fits.
_DELIVERIES_IN_STATE = Pages(
    WebhookDeliveryBody,
    table="webhook_deliveries",
    scope="state",
    columns=_DELIVERY_COLUMNS,
    filters={None: "webhook_id = %s"},
)
# An attempt that is running ends first: outcomes of two concurrent attempts could not be told apart.
_AGAIN = """
UPDATE webhook_deliveries
SET state = 'pending', attempts_before = attempts, delivered_at = NULL,
    next_attempt_at = CASE WHEN state = 'pending' AND sending THEN next_attempt_at ELSE clock_timestamp() END,
    sending = state = 'pending' AND sending
WHERE webhook_id = %s AND id = %s
"""
# The recursive part skips from webhook to webhook on the index and takes a few of each, so the backlog of one that does
# not answer is never scanned. `number` orders the deliveries of a host, which gets no more than its free slots. `turn`
# interleaves workspaces, so that slow receivers of one do not delay the others. now() instead of clock_timestamp(),
# because an index condition needs a stable function.
_CLAIM = """
WITH RECURSIVE waiting AS (
    (SELECT webhook_id FROM webhook_deliveries WHERE state = 'pending' ORDER BY webhook_id LIMIT 1)
    UNION ALL
    SELECT (
        SELECT d.webhook_id FROM webhook_deliveries d
        WHERE d.state = 'pending' AND d.webhook_id > waiting.webhook_id ORDER BY d.webhook_id LIMIT 1
    )
    FROM waiting WHERE waiting.webhook_id IS NOT NULL
), due AS (
    SELECT d.id, d.next_attempt_at, coalesce(busy.slots, 0) AS taken,
           row_number() OVER (PARTITION BY w.host ORDER BY d.next_attempt_at) AS number,
           row_number() OVER (PARTITION BY w.workspace_id ORDER BY d.next_attempt_at) AS turn
    FROM waiting
    LEFT JOIN webhooks w ON w.id = waiting.webhook_id
    LEFT JOIN unnest(%s::text[], %s::integer[]) AS busy (host, slots) ON busy.host = w.host
    CROSS JOIN LATERAL (
        SELECT id, next_attempt_at FROM webhook_deliveries
        WHERE webhook_id = waiting.webhook_id AND state = 'pending' AND next_attempt_at <= now()
        ORDER BY next_attempt_at LIMIT %s
    ) d
), chosen AS (
    SELECT id FROM webhook_deliveries
    WHERE id IN (SELECT id FROM due WHERE taken + number <= %s ORDER BY turn, next_attempt_at LIMIT %s)
      AND state = 'pending' AND next_attempt_at <= now()
    FOR UPDATE SKIP LOCKED
)
UPDATE webhook_deliveries d
SET attempts = attempts + 1, sending = true, next_attempt_at = clock_timestamp() + make_interval(secs => %s)
FROM chosen WHERE d.id = chosen.id
RETURNING d.id, d.webhook_id, d.event, d.payload, d.attempts, d.attempts - d.attempts_before
"""
# In any state: the receiver has the message, whatever happened to the delivery meanwhile.
_DELIVERED = """
UPDATE webhook_deliveries
SET state = 'delivered', sending = false, last_status = %s, last_error = NULL, duration_ms = %s,
    delivered_at = clock_timestamp()
WHERE id = %s AND attempts = %s
"""
_RETRY = """
UPDATE webhook_deliveries
SET sending = false, last_status = %s, last_error = %s, duration_ms = %s, next_attempt_at = clock_timestamp() + %s
WHERE id = %s AND attempts = %s AND state = 'pending'
"""
_FAILED = """
UPDATE webhook_deliveries
SET state = 'failed', sending = false, last_status = %s, last_error = %s, duration_ms = %s
WHERE id = %s AND attempts = %s AND state = 'pending'
"""
# Claimed but not sent, so it does not count as an attempt.
_GIVE_UP = """
UPDATE webhook_deliveries SET state = 'failed', sending = false, attempts = attempts - 1, last_error = %s
WHERE id = ANY(%s)
"""
_FORGET = "DELETE FROM webhook_deliveries WHERE id = ANY(%s)"
# Pending ones are kept: somebody may have requested an old one again. The retention of the
# server applies to those of a deleted webhook, which has no workspace.
_DELETE_OLD = """
WITH old AS (
    SELECT d.id, d.state <> 'pending' AND d.id < lowest_id_at(
        now() - make_interval(days => coalesce((w.retention->>'delivery_days')::integer, %s))
    ) AS is_expired
    FROM webhook_deliveries d
    LEFT JOIN webhooks h ON h.id = d.webhook_id LEFT JOIN workspaces w ON w.id = h.workspace_id
    WHERE d.id > %s AND d.id < lowest_id_at(now() - make_interval(days => %s))
    ORDER BY d.id LIMIT %s
), gone AS (
    DELETE FROM webhook_deliveries WHERE id = ANY (ARRAY(
        SELECT id FROM webhook_deliveries
        WHERE id = ANY (ARRAY(SELECT id FROM old WHERE is_expired)) AND state <> 'pending' FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
)
SELECT (SELECT count(*) FROM gone), count(*), (SELECT id FROM old ORDER BY id DESC LIMIT 1) FROM old
"""


async def add_deliveries(connection: Connection, deliveries: Sequence[NewDelivery]) -> None:
    rows = [(one.id, one.webhook_id, one.event, one.run_id, one.payload) for one in deliveries]
    await connection.cursor().executemany(_ADD_DELIVERY, rows)


async def get_delivery(
    connection: Connection, workspace_id: UUID, webhook_id: UUID, delivery_id: UUID
) -> WebhookDeliveryBody | None:
    """None also if the webhook belongs to another workspace."""
    if await get(connection, workspace_id, webhook_id) is None:
        return None
    return await _DELIVERIES.get(connection, webhook_id, delivery_id)


async def page_of_deliveries(
    connection: Connection,
    webhook_id: UUID,
    start: UUID,
    count: int,
    *,
    state: DeliveryState | None,
    newest_first: bool,
) -> list[WebhookDeliveryBody]:
    """`count` deliveries from `start`, inclusive."""
    if state is None:
        return await _DELIVERIES.page(connection, webhook_id, start, count, newest_first=newest_first)
    return await _DELIVERIES_IN_STATE.page(connection, state, start, count, webhook_id, newest_first=newest_first)


async def send_again(connection: Connection, webhook_id: UUID, delivery_id: UUID) -> None:
    await connection.execute(_AGAIN, (webhook_id, delivery_id))


async def claim(
    connection: Connection, slots: int, busy: dict[str, int], per_host: int, lease_seconds: float
) -> list[Claimed]:
    """Start attempts of up to `slots` due deliveries. `busy` has the number of running attempts by host."""
    values = (list(busy), list(busy.values()), per_host, per_host, slots, lease_seconds)
    rows = await (await connection.execute(_CLAIM, values)).fetchall()
    return [Claimed(*row) for row in rows]


async def store_outcome(connection: Connection, claimed: Claimed, outcome: DeliveryOutcome) -> None:
    failure = (outcome.status, outcome.error, outcome.duration_ms)
    attempt = (claimed.id, claimed.attempt)
    if outcome.error is None:
        await connection.execute(_DELIVERED, (outcome.status, outcome.duration_ms, *attempt))
    elif outcome.pause is None:
        await connection.execute(_FAILED, (*failure, *attempt))
    else:
        await connection.execute(_RETRY, (*failure, outcome.pause, *attempt))


async def give_up(connection: Connection, delivery_ids: list[UUID], reason: str) -> None:
    await connection.execute(_GIVE_UP, (reason, delivery_ids))


async def forget(connection: Connection, delivery_ids: list[UUID]) -> None:
    await connection.execute(_FORGET, (delivery_ids,))


async def delete_old(connection: Connection, after: UUID, days: int, shortest_days: int, batch: int) -> BatchResult:
    """A batch of those after `after`. `days`: the retention of the server. `shortest_days`: of all workspaces."""
    return await fetch_step(connection, _DELETE_OLD, (days, after, shortest_days, batch))
