"""The rows of actions. Writers hold the lock of the session (`events.log.lock_session`)."""

from typing import Any
from uuid import UUID

import msgspec
from psycopg.types.json import Jsonb

from quarterdeck.conversations.actions.model import (
    ActionBody,
    ActionKind,
    ActionState,
    CallAction,
    NewAction,
    ReachedLimit,
)
from quarterdeck.core.actors import Caller
from quarterdeck.core.ids import created_at
from quarterdeck.db.database import Connection

_COLUMNS = """id, session_id, run_id, kind, state, call_id, tool, arguments, reached, reason, expires_at, resolved_at,
       resolved_by, resolution"""
_ADD = f"""
INSERT INTO actions
    (id, workspace_id, session_id, run_id, kind, step, call_id, tool, arguments, attempt, reached, reason, expires_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, clock_timestamp() + make_interval(secs => %s))
RETURNING {_COLUMNS}
"""  # noqa: S608
_OF_STEP = """
SELECT kind, state, call_id, attempt, resolution FROM actions
WHERE run_id = %s AND step = %s AND call_id IS NOT NULL ORDER BY id
"""
_LAST_BUDGET = f"""
SELECT {_COLUMNS} FROM actions WHERE run_id = %s AND step IS NULL AND kind = 'budget' ORDER BY id DESC LIMIT 1
"""  # noqa: S608
_REMEMBERED = """
SELECT DISTINCT tool FROM actions
WHERE session_id = %s AND resolution->>'remember' = 'session' AND resolution->>'decision' = 'allow'
  AND kind = 'approval' AND state = 'resolved'
"""
_CANCEL = f"""
UPDATE actions SET state = 'cancelled', resolved_at = clock_timestamp() WHERE run_id = %s AND state = 'open'
RETURNING {_COLUMNS}
"""  # noqa: S608


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
    values = (action_id, workspace_id, session_id, run_id, new.kind, *call, new.reason, expiry_seconds)
    row = await (await connection.execute(_ADD, values)).fetchone()
    assert row is not None
    return _body(row)


async def of_step(connection: Connection, run_id: UUID, step: int) -> list[CallAction]:
    rows = await (await connection.execute(_OF_STEP, (run_id, step))).fetchall()
    return [CallAction(ActionKind(kind), ActionState(state), *rest) for kind, state, *rest in rows]


async def last_budget(connection: Connection, run_id: UUID) -> ActionBody | None:
    row = await (await connection.execute(_LAST_BUDGET, (run_id,))).fetchone()
    return None if row is None else _body(row)


async def remembered_tools(connection: Connection, session_id: UUID) -> frozenset[str]:
    rows = await (await connection.execute(_REMEMBERED, (session_id,))).fetchall()
    return frozenset(tool for (tool,) in rows)


async def cancel(connection: Connection, run_id: UUID) -> list[ActionBody]:
    """The actions that were open, oldest first."""
    rows = await (await connection.execute(_CANCEL, (run_id,))).fetchall()
    return sorted(map(_body, rows), key=lambda action: action.id)


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
