"""SQL of webhooks. Secrets are encrypted before they get here."""

from typing import Any
from uuid import UUID

from quarterdeck.core.actors import ActorBody
from quarterdeck.core.ids import created_at
from quarterdeck.core.pages import bounds
from quarterdeck.db.database import Connection
from quarterdeck.webhooks.model import NewWebhook, Receiver, WebhookBody, WebhookEvent

# Seeds 0 to 3 belong to sessions, keys, receipts and places.
_LOCK_WORKSPACE = "SELECT pg_advisory_xact_lock(hashtextextended(%s::text, 4))"
_COUNT = "SELECT count(*) FROM webhooks WHERE workspace_id = %s"
_ADD = """
INSERT INTO webhooks (id, workspace_id, url, host, events, description, secret, created_by)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
"""
_GET = """
SELECT w.id, w.url, w.events, w.description, w.enabled, w.disabled_reason, w.previous_secret_expires_at, w.revision,
       u.id, u.display_name, u.email
FROM webhooks w JOIN users u ON u.id = w.created_by
WHERE w.workspace_id = %s AND w.id = %s
"""
_LOCK = "SELECT FROM webhooks WHERE workspace_id = %s AND id = %s FOR UPDATE"
# The workspace is part of the bounds and of the order, so that the planner can use only the matching index: as in
# api_keys/store.py.
_NEWEST_FIRST = """
SELECT w.id, w.url, w.events, w.description, w.enabled, w.disabled_reason, w.previous_secret_expires_at, w.revision,
       u.id, u.display_name, u.email
FROM webhooks w JOIN users u ON u.id = w.created_by
WHERE (w.workspace_id, w.id) BETWEEN (%s, %s) AND (%s, %s)
ORDER BY w.workspace_id DESC, w.id DESC LIMIT %s
"""
_OLDEST_FIRST = """
SELECT w.id, w.url, w.events, w.description, w.enabled, w.disabled_reason, w.previous_secret_expires_at, w.revision,
       u.id, u.display_name, u.email
FROM webhooks w JOIN users u ON u.id = w.created_by
WHERE (w.workspace_id, w.id) BETWEEN (%s, %s) AND (%s, %s)
ORDER BY w.workspace_id, w.id LIMIT %s
"""
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
    row = await (await connection.execute(_COUNT, (workspace_id,))).fetchone()
    assert row is not None
    found: int = row[0]
    return found


async def add(connection: Connection, webhook: NewWebhook) -> None:
    await connection.execute(
        _ADD,
        (
            webhook.id,
            webhook.workspace_id,
            webhook.url,
            webhook.host,
            [str(event) for event in webhook.events],
            webhook.description,
            webhook.secret,
            webhook.created_by,
        ),
    )


async def get(connection: Connection, workspace_id: UUID, webhook_id: UUID) -> WebhookBody | None:
    row = await (await connection.execute(_GET, (workspace_id, webhook_id))).fetchone()
    return None if row is None else _body(row)


async def lock(connection: Connection, workspace_id: UUID, webhook_id: UUID) -> None:
    """A separate statement, so that the next read sees what the previous holder of the lock committed."""
    await connection.execute(_LOCK, (workspace_id, webhook_id))


async def page(
    connection: Connection, workspace_id: UUID, start: UUID, count: int, *, newest_first: bool
) -> list[WebhookBody]:
    """`count` webhooks from `start`, inclusive."""
    query = _NEWEST_FIRST if newest_first else _OLDEST_FIRST
    lowest, highest = bounds(start, newest_first=newest_first)
    values = (workspace_id, lowest, workspace_id, highest, count)
    rows = await (await connection.execute(query, values)).fetchall()
    return [_body(row) for row in rows]


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
    rows = await (await connection.execute(_SUBSCRIBERS, (workspace_id, event))).fetchall()
    return [row[0] for row in rows]


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
    rows = await (await connection.execute(_SECRETS)).fetchall()
    return [(row[0], row[1], row[2]) for row in rows]


async def set_secrets(connection: Connection, webhook_id: UUID, secret: bytes, previous: bytes | None) -> None:
    await connection.execute(_SET_SECRETS, (secret, previous, webhook_id))


def _body(row: tuple[Any, ...]) -> WebhookBody:
    webhook_id, url, events, description, enabled, reason, expires_at, revision, user_id, name, email = row
    return WebhookBody(
        id=webhook_id,
        url=url,
        events=[WebhookEvent(event) for event in events],
        description=description,
        enabled=enabled,
        disabled_reason=reason,
        previous_secret_expires_at=expires_at,
        created_at=created_at(webhook_id),
        created_by=ActorBody(user_id, name, email),
        revision=revision,
    )
