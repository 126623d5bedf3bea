"""Closes actions that nobody answered in time. Workers do it in their recovery loop."""

from uuid import UUID

from quarterdeck.conversations.actions import records, store
from quarterdeck.conversations.actions.model import ActionBody
from quarterdeck.db.database import Connection, Database

_BATCH = 100
# Bounds the time of one round: the other work of the recovery loop waits for it.
_BATCHES = 10


async def expire_actions(database: Database, batch: int = _BATCH, batches: int = _BATCHES) -> int:
    """The number of actions that expired. Safe to run in all workers at once: a session that another one has locked is
    skipped. Looks at the current state, so what is left over is found in the next round."""

    async def expire(connection: Connection) -> int:
        session_ids = await store.lock_due_sessions(connection, batch)
        if not session_ids:
            return 0
        # A statement of its own: it must see what the previous holders of the locks committed.
        expired = await store.expire(connection, session_ids)
        by_workspace: dict[UUID, list[ActionBody]] = {}
        for workspace_id, action in expired:
            by_workspace.setdefault(workspace_id, []).append(action)
        for workspace_id, actions in by_workspace.items():
            await records.report_closed(connection, workspace_id, actions)
        for run_id in {action.run_id for _, action in expired}:
            await store.continue_run(connection, run_id)
        return len(expired)

    total = 0
    for _ in range(batches):
        count = await database.transaction(expire, repeatable=True)
        total += count
        if count == 0:
            break
    return total
