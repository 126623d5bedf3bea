"""Closes actions without an answer: nobody answered in time, or the limit that was reached no longer applies. Workers
do it in their recovery loop. It looks at the current state, so the next round finds what this one left over."""

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from quarterdeck.db.database import Connection, Database
from quarterdeck.runs.actions import records, store
from quarterdeck.runs.actions.model import ActionBody

_BATCH = 100
# Bounds the time of one round: the other work of the recovery loop waits for it.
_BATCHES = 10

_Lock = Callable[[Connection, int], Awaitable[list[UUID]]]
_Close = Callable[[Connection, Sequence[UUID]], Awaitable[list[tuple[UUID, ActionBody]]]]


async def expire_actions(database: Database, batch: int = _BATCH, batches: int = _BATCHES) -> int:
    """The number of actions that expired."""
    return await _close_all(database, store.lock_due_sessions, store.expire, batch, batches)


async def release_actions(database: Database, batch: int = _BATCH, batches: int = _BATCHES) -> int:
    """The number of budget actions that were closed because their limit was raised or removed, or their day is over.
    Their runs check all limits again before the next step, and may open new actions."""
    return await _close_all(database, store.lock_lifted_sessions, store.release, batch, batches)


async def _close_all(database: Database, lock: _Lock, close: _Close, batch: int, batches: int) -> int:
    """Safe to run in all workers at once: `lock` skips a session that another one has locked."""

    async def work(connection: Connection) -> int:
        session_ids = await lock(connection, batch)
        if not session_ids:
            return 0
        # A statement of its own: it must see what the previous holders of the locks committed.
        closed = await close(connection, session_ids)
        by_workspace: dict[UUID, list[ActionBody]] = {}
        for workspace_id, action in closed:
            by_workspace.setdefault(workspace_id, []).append(action)
        for workspace_id, actions in by_workspace.items():
            await records.report_closed(connection, workspace_id, actions)
        for run_id in {action.run_id for _, action in closed}:
            await store.continue_run(connection, run_id)
        return len(closed)

    total = 0
    for _ in range(batches):
        count = await database.transaction(work, repeatable=True)
        total += count
        if count == 0:
            break
    return total
