"""The rows of actions. Writers hold the lock of the session (`events.log.lock_session`)."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
from psycopg.types.json import Jsonb

from quarterdeck.core.actors import Caller
from quarterdeck.core.pages import bounds
from quarterdeck.db.database import Connection
from quarterdeck.db.records import fetch_column, fetch_record, fetch_records, fetch_value
from quarterdeck.runs.action_model import (
    ActionBody,
    ActionData,
    ActionId,
    ActionKind,
    ActionQuery,
    ActionState,
    CallAction,
    NewAction,
    RememberedTool,
)

_ADD = """
INSERT INTO actions
    (id, workspace_id, session_id, run_id, kind, step, call_id, tool, arguments, attempt, reached, tool_definition,
     reason, expires_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, decode(%s, 'hex'), %s,
        clock_timestamp() + make_interval(secs => %s))
RETURNING *
"""
_GET = """
SELECT * FROM actions a
WHERE workspace_id = %s AND id = %s AND EXISTS (SELECT FROM sessions s WHERE s.id = a.session_id)
"""
# A few ids from each combination of state and kind. All columns of the index are in the bounds and in the order, so
# that only that index fits: see db/records.py. Actions of deleted sessions are not visible.
_PAGES = {
    (scope, newest_first): f"""
SELECT found.id FROM unnest(%(states)s::text[]) AS states (state) CROSS JOIN unnest(%(kinds)s::text[]) AS kinds (kind)
CROSS JOIN LATERAL (
    SELECT a.id FROM actions a
    WHERE (a.{scope}, a.state, a.kind, a.id) BETWEEN (%(scope)s, states.state, kinds.kind, %(lowest)s)
                                                 AND (%(scope)s, states.state, kinds.kind, %(highest)s)
      AND {visible}
    ORDER BY a.{scope} {order}, a.state {order}, a.kind {order}, a.id {order} LIMIT %(count)s
) AS found
ORDER BY found.id {order} LIMIT %(count)s
"""  # noqa: S608  built from constants
    for scope, visible in (
        ("workspace_id", "(SELECT true FROM sessions s WHERE s.id = a.session_id)"),
        ("session_id", "(SELECT true FROM sessions s WHERE s.id = a.session_id AND s.workspace_id = %(workspace)s)"),
    )
    for newest_first, order in ((True, "DESC"), (False, "ASC"))
}
_READ = "SELECT * FROM read_actions(%s, %s, %s)"
_RESOLVE = """
UPDATE actions SET state = 'resolved', resolved_at = clock_timestamp(), resolved_by = %s, resolution = %s
WHERE id = %s AND state = 'open'
RETURNING *
"""
_CONTINUE_RUN = "SELECT continue_run(%s)"
_RAISE_LIMIT = "SELECT raise_limit(%s, %s::numeric, %s)"
# now(), because an index condition needs a stable function. A session that is locked is in use, and is looked at again
# in the next round.
_LOCK_DUE = """
SELECT due.session_id FROM (
    SELECT DISTINCT first.session_id FROM (
        SELECT a.session_id FROM actions a
        WHERE a.state = 'open' AND a.expires_at <= now() AND (SELECT true FROM sessions s WHERE s.id = a.session_id)
        ORDER BY a.expires_at LIMIT %s
    ) AS first
    OFFSET 0
) AS due WHERE pg_try_advisory_xact_lock(session_lock(due.session_id))
"""
_EXPIRE = """
UPDATE actions a SET state = 'expired', resolved_at = clock_timestamp()
WHERE session_id = ANY (%s) AND state = 'open' AND expires_at <= now()
  AND EXISTS (SELECT FROM sessions s WHERE s.id = a.session_id)
RETURNING *
"""
_LOCK_LIFTED = """
SELECT lifted.session_id FROM (
    SELECT DISTINCT first.session_id FROM (SELECT l.session_id FROM lifted_actions() l LIMIT %s) AS first
    OFFSET 0
) AS lifted WHERE pg_try_advisory_xact_lock(session_lock(lifted.session_id))
"""
_RELEASE = """
UPDATE actions SET state = 'resolved', resolved_at = clock_timestamp(), resolution = '{"decision": "raise"}'
WHERE id IN (SELECT l.id FROM lifted_actions() l WHERE l.session_id = ANY (%s)) AND state = 'open'
RETURNING *
"""
_OF_CALL = """
SELECT kind, state, call_id, attempt, resolution FROM actions
WHERE run_id = %s AND step = %s AND call_id = %s ORDER BY id
"""
_REMEMBERED = """
SELECT DISTINCT tool AS name, encode(tool_definition, 'hex') AS definition FROM actions
WHERE session_id = %s AND resolution->>'remember' = 'session' AND resolution->>'decision' = 'allow'
  AND kind = 'approval' AND state = 'resolved'
"""
_CANCEL = """
UPDATE actions SET state = 'cancelled', resolved_at = clock_timestamp() WHERE run_id = %s AND state = 'open'
RETURNING *
"""
# As for the log: see sessions/store.py.
_PURGE = """
DELETE FROM actions
WHERE ctid = ANY (ARRAY(SELECT ctid FROM actions WHERE session_id = %s ORDER BY session_id, state, kind, id LIMIT %s))
"""


async def add(
    connection: Connection,
    action_id: UUID,
    workspace_id: UUID,
    session_id: UUID,
    run_id: UUID,
    new: NewAction,
    expiry_seconds: int,
) -> ActionBody:
    call = (new.step, new.call_id, new.tool, _jsonb(new.arguments), new.attempt, _jsonb(new.reached))
    rest = (new.tool_definition, new.reason, expiry_seconds)
    values = (action_id, workspace_id, session_id, run_id, new.kind, *call, *rest)
    added = await fetch_record(connection, ActionBody, _ADD, values)
    assert added is not None
    return added


async def get(connection: Connection, workspace_id: UUID, action_id: UUID) -> ActionBody | None:
    return await fetch_record(connection, ActionBody, _GET, (workspace_id, action_id))


async def page(
    connection: Connection, workspace_id: UUID, start: UUID, count: int, *, filters: ActionQuery, newest_first: bool
) -> list[ActionId]:
    """`count` ids from `start` on, inclusive."""
    lowest, highest = bounds(start, newest_first=newest_first)
    values = {
        "states": list(ActionState) if filters.state is None else [filters.state],
        "kinds": list(ActionKind) if filters.kind is None else [filters.kind],
        "scope": filters.session_id or workspace_id,
        "workspace": workspace_id,
        "lowest": lowest,
        "highest": highest,
        "count": count,
    }
    scope = "workspace_id" if filters.session_id is None else "session_id"
    return await fetch_records(connection, ActionId, _PAGES[scope, newest_first], values)


async def read(
    connection: Connection, workspace_id: UUID, items: Sequence[ActionId], budget_bytes: int
) -> list[ActionBody]:
    """The actions in this order, up to the one that uses up the budget."""
    values = (workspace_id, [item.id for item in items], budget_bytes)
    return await fetch_records(connection, ActionBody, _READ, values)


async def resolve(
    connection: Connection, action_id: UUID, caller: Caller, resolution: dict[str, Any]
) -> ActionBody | None:
    """None: the action is not open."""
    values = (_jsonb(caller), Jsonb(resolution), action_id)
    return await fetch_record(connection, ActionBody, _RESOLVE, values)


async def continue_run(connection: Connection, run_id: UUID) -> None:
    """Queues the run if none of its actions is open."""
    await connection.execute(_CONTINUE_RUN, (run_id,))


async def raise_limit(
    connection: Connection, action_id: UUID, max_cost_usd: float | None, max_tokens: int | None
) -> float | None:
    """None: the limit was raised. Otherwise what has been used, which is not less than the new limit."""
    used = await fetch_value(connection, _RAISE_LIMIT, (action_id, max_cost_usd, max_tokens))
    return None if used is None else float(used)


async def expire(connection: Connection, batch: int) -> list[ActionData]:
    """Those of the sessions of the `batch` oldest actions that are due, oldest first. Locks these sessions, and passes
    over those that are locked."""
    # The second is a statement of its own: it must see what the previous holders of the locks committed.
    return await _close(connection, _EXPIRE, await fetch_column(connection, _LOCK_DUE, (batch,)))


async def release(connection: Connection, batch: int) -> list[ActionData]:
    """As `expire`, for actions whose limit no longer applies."""
    return await _close(connection, _RELEASE, await fetch_column(connection, _LOCK_LIFTED, (batch,)))


async def of_call(connection: Connection, run_id: UUID, step: int, call_id: str) -> list[CallAction]:
    """The actions of a call that the answer number `step` made, oldest first."""
    return await fetch_records(connection, CallAction, _OF_CALL, (run_id, step, call_id))


async def remembered_tools(connection: Connection, session_id: UUID) -> frozenset[RememberedTool]:
    return frozenset(await fetch_records(connection, RememberedTool, _REMEMBERED, (session_id,)))


async def cancel(connection: Connection, run_id: UUID) -> list[ActionData]:
    """The actions that were open, oldest first."""
    return await _close(connection, _CANCEL, run_id)


async def purge(connection: Connection, session_id: UUID, batch: int) -> int:
    """Deletes a batch of the actions of a deleted session. Returns their number."""
    return (await connection.execute(_PURGE, (session_id, batch))).rowcount


async def _close(connection: Connection, query: str, of: object) -> list[ActionData]:
    return sorted(await fetch_records(connection, ActionData, query, (of,)), key=lambda action: action.id)


def _jsonb(value: object) -> Jsonb | None:
    return None if value is None else Jsonb(msgspec.to_builtins(value))
