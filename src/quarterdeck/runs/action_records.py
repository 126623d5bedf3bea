"""Actions in the transactions of others: a run begins to wait, or is cancelled. Each function is a part of its caller's
transaction, which holds the lock of the session.

An action changes together with its event in the session's log and the deliveries of its webhooks.
"""

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import msgspec

from quarterdeck.core.ids import new_id
from quarterdeck.core.settings import ActionSettings
from quarterdeck.db.database import Connection, Database
from quarterdeck.events import log as events
from quarterdeck.events.model import EventType, NewEvent
from quarterdeck.runs import action_rules, action_store
from quarterdeck.runs.action_model import ActionBody, ActionData, NewAction
from quarterdeck.webhooks import service as webhooks
from quarterdeck.webhooks.model import WebhookEvent


async def open_actions(
    connection: Connection,
    workspace_id: UUID,
    session_id: UUID,
    run_id: UUID,
    new: Sequence[NewAction],
    settings: ActionSettings,
) -> None:
    """Stores the actions. The caller makes the run wait in the same transaction."""
    opened = [
        await action_store.add(
            connection, new_id(), workspace_id, session_id, run_id, one, action_rules.expiry_seconds(one.kind, settings)
        )
        for one in new
    ]
    names = ("kind", "call_id", "tool", "arguments", "reached", "reason", "expires_at")
    await _report(connection, workspace_id, opened, EventType.ACTION_REQUIRED, names)


async def cancel_actions(connection: Connection, run_id: UUID, workspace_id: UUID) -> None:
    """Closes the open actions of a run that is being cancelled."""
    await report_closed(connection, workspace_id, await action_store.cancel(connection, run_id))


purge = action_store.purge


async def report_closed(connection: Connection, workspace_id: UUID, closed: Sequence[ActionBody]) -> None:
    """For actions that were resolved, expired or cancelled in this transaction."""
    names = ("kind", "state", "call_id", "tool", "resolution", "resolved_by")
    await _report(connection, workspace_id, closed, EventType.ACTION_RESOLVED, names)


async def _report(
    connection: Connection,
    workspace_id: UUID,
    actions: Sequence[ActionBody],
    event_type: EventType,
    names: tuple[str, ...],
) -> None:
    """Adds the event with these fields of the action, and the deliveries of the webhook event of the same name."""
    if not actions:
        return
    event = WebhookEvent(event_type)
    subscribers = await webhooks.subscribers(connection, workspace_id, event)
    for action in actions:
        fields = {name: getattr(action, name) for name in names}
        data = msgspec.to_builtins({"action_id": action.id} | fields)
        await events.append(connection, action.session_id, action.run_id, NewEvent(event_type, data))
        if subscribers:
            whole = ActionData(**msgspec.structs.asdict(action) | {"workspace_id": workspace_id})
            await webhooks.add_deliveries(connection, subscribers, event, action.run_id, whole)


# Closes actions without an answer: nobody answered in time, or the limit that was reached no longer applies. Workers do
# it in their recovery loop. It looks at the current state, so the next round finds what this one left over.

_BATCH = 100
# Bounds the time of one round: the other work of the recovery loop waits for it.
_BATCHES = 10


async def expire_actions(database: Database, batch: int = _BATCH, batches: int = _BATCHES) -> int:
    """The number of actions that expired."""
    return await _close_all(database, action_store.expire, batch, batches)


async def release_actions(database: Database, batch: int = _BATCH, batches: int = _BATCHES) -> int:
    """The number of budget actions that were closed because their limit was raised or removed, or their day is over.
    Their runs check all limits again before the next step, and may open new actions."""
    return await _close_all(database, action_store.release, batch, batches)


async def _close_all(
    database: Database, close: Callable[[Connection, int], Awaitable[list[ActionData]]], batch: int, batches: int
) -> int:
    """Safe to run in all workers at once: `close` skips a session that another one has locked."""

    async def work(connection: Connection) -> int:
        closed = await close(connection, batch)
        for workspace_id in {action.workspace_id for action in closed}:
            actions = [action for action in closed if action.workspace_id == workspace_id]
            await report_closed(connection, workspace_id, actions)
        for run_id in {action.run_id for action in closed}:
            await action_store.continue_run(connection, run_id)
        return len(closed)

    total = 0
    for _ in range(batches):
        count = await database.transaction(work, repeatable=True)
        total += count
        if count == 0:
            break
    return total
