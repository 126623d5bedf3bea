"""Audit events in the database. They are added and, after their time, removed; never changed."""

from uuid import UUID

from psycopg.types.json import Jsonb

from quarterdeck.access.model import Principal
from quarterdeck.audit.model import Change, Origin
from quarterdeck.db.database import Connection

_ADD = """
INSERT INTO audit_events
    (id, workspace_id, action, object_type, object_id, user_id, api_key_id, session_token_id, address, request_id,
     detail)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""


async def add(
    connection: Connection, event_id: UUID, workspace_id: UUID, change: Change, who: Principal | None, origin: Origin
) -> None:
    actor = (None, None, None) if who is None else (who.user_id, who.api_key_id, who.session_token_id)
    await connection.execute(
        _ADD,
        (
            event_id,
            workspace_id,
            change.action,
            change.object_type,
            change.object_id,
            *actor,
            origin.address,
            origin.request_id,
            Jsonb(change.detail),
        ),
    )
