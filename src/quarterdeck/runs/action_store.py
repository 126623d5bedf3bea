"""The rows of actions. Writers hold the lock of the session (`events.log.lock_session`)."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
from psycopg.types.json import Jsonb

from quarterdeck.core.actors import Caller
from quarterdeck.core.ids import created_at
from quarterdeck.core.pages import bounds
from quarterdeck.db.database import Connection
from quarterdeck.runs.action_model import (
    ActionBody,
    ActionId,
    ActionKind,
    ActionQuery,
    ActionState,
    CallAction,
    NewAction,
    ReachedLimit,
    RememberedTool,
)

_ADD = """
INSERT INTO actions
    (id, workspace_id, session_id, run_id, kind, step, call_id, tool, arguments, attempt, reached, tool_definition,
     reason, expires_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, decode(%s, 'hex'), %s,
        clock_timestamp() + make_interval(secs => %s))
RETURNING id, session_id, run_id, kind, state, call_id, tool, arguments, reached, reason, expires_at, resolved_at,
          resolved_by, resolution
"""
_GET = """
SELECT id, session_id, run_id, kind, state, call_id, tool, arguments, reached, reason, expires_at, resolved_at,
       resolved_by, resolution
FROM actions a WHERE workspace_id = %s AND id = %s AND EXISTS (SELECT FROM sessions s WHERE s.id = a.session_id)
"""
# A few ids from each combination of state and kind. All columns of the index are in the bounds and in the order, so
# that the planner can use only that index: as in api_keys/store.py. Actions of deleted sessions are not visible.
_NEWEST_OF_WORKSPACE = """
SELECT found.id FROM unnest(%s::text[]) AS states (state) CROSS JOIN unnest(%s::text[]) AS kinds (kind)
CROSS JOIN LATERAL (
    SELECT a.id FROM actions a
    WHERE (a.workspace_id, a.state, a.kind, a.id)
          BETWEEN (%s, states.state, kinds.kind, %s) AND (%s, states.state, kinds.kind, %s)
      AND (SELECT true FROM sessions s WHERE s.id = a.session_id)
    ORDER BY a.workspace_id DESC, a.state DESC, a.kind DESC, a.id DESC LIMIT %s
) AS found
ORDER BY found.id DESC LIMIT %s
"""
_OLDEST_OF_WORKSPACE = """
SELECT found.id FROM unnest(%s::text[]) AS states (state) CROSS JOIN unnest(%s::text[]) AS kinds (kind)
CROSS JOIN LATERAL (
    SELECT a.id FROM actions a
    WHERE (a.workspace_id, a.state, a.kind, a.id)
          BETWEEN (%s, states.state, kinds.kind, %s) AND (%s, states.state, kinds.kind, %s)
      AND (SELECT true FROM sessions s WHERE s.id = a.session_id)
    ORDER BY a.workspace_id, a.state, a.kind, a.id LIMIT %s
) AS found
ORDER BY found.id LIMIT %s
"""
_NEWEST_OF_SESSION = """
SELECT found.id FROM unnest(%s::text[]) AS states (state) CROSS JOIN unnest(%s::text[]) AS kinds (kind)
CROSS JOIN LATERAL (
    SELECT a.id FROM actions a
    WHERE (a.session_id, a.state, a.kind, a.id)
          BETWEEN (%s, states.state, kinds.kind, %s) AND (%s, states.state, kinds.kind, %s)
    ORDER BY a.session_id DESC, a.state DESC, a.kind DESC, a.id DESC LIMIT %s
) AS found
WHERE EXISTS (SELECT FROM sessions s WHERE s.workspace_id = %s AND s.id = %s)
ORDER BY found.id DESC LIMIT %s
"""
_OLDEST_OF_SESSION = """
SELECT found.id FROM unnest(%s::text[]) AS states (state) CROSS JOIN unnest(%s::text[]) AS kinds (kind)
CROSS JOIN LATERAL (
    SELECT a.id FROM actions a
    WHERE (a.session_id, a.state, a.kind, a.id)
          BETWEEN (%s, states.state, kinds.kind, %s) AND (%s, states.state, kinds.kind, %s)
    ORDER BY a.session_id, a.state, a.kind, a.id LIMIT %s
) AS found
WHERE EXISTS (SELECT FROM sessions s WHERE s.workspace_id = %s AND s.id = %s)
ORDER BY found.id LIMIT %s
"""
_READ = """
SELECT id, session_id, run_id, kind, state, call_id, tool, arguments, reached, reason, expires_at, resolved_at,
       resolved_by, resolution
FROM read_actions(%s, %s, %s)
"""
_RESOLVE = """
UPDATE actions SET state = 'resolved', resolved_at = clock_timestamp(), resolved_by = %s, resolution = %s
WHERE id = %s AND state = 'open'
RETURNING id, session_id, run_id, kind, state, call_id, tool, arguments, reached, reason, expires_at, resolved_at,
          resolved_by, resolution
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
RETURNING id, session_id, run_id, kind, state, call_id, tool, arguments, reached, reason, expires_at, resolved_at,
          resolved_by, resolution, workspace_id
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
RETURNING id, session_id, run_id, kind, state, call_id, tool, arguments, reached, reason, expires_at, resolved_at,
          resolved_by, resolution, workspace_id
"""
_OF_CALL = """
SELECT kind, state, call_id, attempt, resolution FROM actions
WHERE run_id = %s AND step = %s AND call_id = %s ORDER BY id
"""
_REMEMBERED = """
SELECT DISTINCT tool, encode(tool_definition, 'hex') FROM actions
WHERE session_id = %s AND resolution->>'remember' = 'session' AND resolution->>'decision' = 'allow'
  AND kind = 'approval' AND state = 'resolved'
"""
_CANCEL = """
UPDATE actions SET state = 'cancelled', resolved_at = clock_timestamp() WHERE run_id = %s AND state = 'open'
RETURNING id, session_id, run_id, kind, state, call_id, tool, arguments, reached, reason, expires_at, resolved_at,
          resolved_by, resolution
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
    row = await (await connection.execute(_ADD, values)).fetchone()
    assert row is not None
    return _body(row)


async def get(connection: Connection, workspace_id: UUID, action_id: UUID) -> ActionBody | None:
    row = await (await connection.execute(_GET, (workspace_id, action_id))).fetchone()
    return None if row is None else _body(row)


async def page(
    connection: Connection, workspace_id: UUID, filters: ActionQuery, start: UUID, count: int, *, newest_first: bool
) -> list[ActionId]:
    """`count` ids from `start` on, inclusive."""
    owner_id: UUID
    visible: tuple[UUID, ...]
    if filters.session_id is None:
        query, owner_id, visible = _NEWEST_OF_WORKSPACE if newest_first else _OLDEST_OF_WORKSPACE, workspace_id, ()
    else:
        query, owner_id = _NEWEST_OF_SESSION if newest_first else _OLDEST_OF_SESSION, filters.session_id
        visible = (workspace_id, owner_id)
    states = list(ActionState) if filters.state is None else [filters.state]
    kinds = list(ActionKind) if filters.kind is None else [filters.kind]
    lowest, highest = bounds(start, newest_first=newest_first)
    values = (states, kinds, owner_id, lowest, owner_id, highest, count, *visible, count)
    return [ActionId(*row) for row in await (await connection.execute(query, values)).fetchall()]


async def read(
    connection: Connection, workspace_id: UUID, items: Sequence[ActionId], budget_bytes: int
) -> list[ActionBody]:
    """The actions in this order, up to the one that uses up the budget."""
    values = (workspace_id, [item.id for item in items], budget_bytes)
    return [_body(row) for row in await (await connection.execute(_READ, values)).fetchall()]


async def resolve(
    connection: Connection, action_id: UUID, caller: Caller, resolution: dict[str, Any]
) -> ActionBody | None:
    """None: the action is not open."""
    values = (_jsonb(caller), Jsonb(resolution), action_id)
    row = await (await connection.execute(_RESOLVE, values)).fetchone()
    return None if row is None else _body(row)


async def continue_run(connection: Connection, run_id: UUID) -> None:
    """Queues the run if none of its actions is open."""
    await connection.execute(_CONTINUE_RUN, (run_id,))


async def raise_limit(
    connection: Connection, action_id: UUID, max_cost_usd: float | None, max_tokens: int | None
) -> float | None:
    """None: the limit was raised. Otherwise what has been used, which is not less than the new limit."""
    row = await (await connection.execute(_RAISE_LIMIT, (action_id, max_cost_usd, max_tokens))).fetchone()
    assert row is not None
    return None if row[0] is None else float(row[0])


async def lock_due_sessions(connection: Connection, batch: int) -> list[UUID]:
    """Locks the sessions of the `batch` oldest actions that are due, except for those that are locked."""
    rows = await (await connection.execute(_LOCK_DUE, (batch,))).fetchall()
    return [session_id for (session_id,) in rows]


async def expire(connection: Connection, session_ids: Sequence[UUID]) -> list[tuple[UUID, ActionBody]]:
    """The actions that expired, oldest first, each with its workspace."""
    return _closed(await (await connection.execute(_EXPIRE, (list(session_ids),))).fetchall())


async def lock_lifted_sessions(connection: Connection, batch: int) -> list[UUID]:
    """Locks the sessions of the `batch` oldest actions whose limit no longer applies, except for those that are
    locked."""
    rows = await (await connection.execute(_LOCK_LIFTED, (batch,))).fetchall()
    return [session_id for (session_id,) in rows]


async def release(connection: Connection, session_ids: Sequence[UUID]) -> list[tuple[UUID, ActionBody]]:
    """The actions that were closed because their limit no longer applies, oldest first, each with its workspace."""
    return _closed(await (await connection.execute(_RELEASE, (list(session_ids),))).fetchall())


async def of_call(connection: Connection, run_id: UUID, step: int, call_id: str) -> list[CallAction]:
    rows = await (await connection.execute(_OF_CALL, (run_id, step, call_id))).fetchall()
    return [CallAction(ActionKind(kind), ActionState(state), *rest) for kind, state, *rest in rows]


async def remembered_tools(connection: Connection, session_id: UUID) -> frozenset[RememberedTool]:
    rows = await (await connection.execute(_REMEMBERED, (session_id,))).fetchall()
    return frozenset(RememberedTool(*row) for row in rows)


async def cancel(connection: Connection, run_id: UUID) -> list[ActionBody]:
    """The actions that were open, oldest first."""
    rows = await (await connection.execute(_CANCEL, (run_id,))).fetchall()
    return sorted(map(_body, rows), key=lambda action: action.id)


async def purge(connection: Connection, session_id: UUID, batch: int) -> int:
    return (await connection.execute(_PURGE, (session_id, batch))).rowcount


def _closed(rows: Sequence[tuple[Any, ...]]) -> list[tuple[UUID, ActionBody]]:
    return sorted(((row[-1], _body(row[:-1])) for row in rows), key=lambda one: one[1].id)


def _jsonb(value: object) -> Jsonb | None:
    return None if value is None else Jsonb(msgspec.to_builtins(value))


def _body(row: tuple[Any, ...]) -> ActionBody:
    action_id, session_id, run_id, kind, state, call_id, tool, arguments, reached, reason, *answer = row
    expires_at, resolved_at, resolved_by, resolution = answer
    return ActionBody(
        id=action_id,
        session_id=session_id,
        run_id=run_id,
        kind=ActionKind(kind),
        state=ActionState(state),
        call_id=call_id,
        tool=tool,
        arguments=arguments,
        reached=None if reached is None else msgspec.convert(reached, ReachedLimit),
        reason=reason,
        created_at=created_at(action_id),
        expires_at=expires_at,
        resolved_at=resolved_at,
        resolved_by=None if resolved_by is None else msgspec.convert(resolved_by, Caller),
        resolution=resolution,
    )
