"""Actions in the transactions of others: a run begins to wait, or is cancelled. Each function is a part of its caller's
transaction, which holds the lock of the session.

An action changes together with its event in the session's log and the deliveries of its webhooks.
"""

from collections.abc import Sequence
from uuid import UUID

import msgspec

from quarterdeck.core.ids import new_id
from quarterdeck.core.settings import ActionSettings
from quarterdeck.db.database import Connection
from quarterdeck.events import log as events
from quarterdeck.events.model import EventType, NewEvent
from quarterdeck.events.notifications import announce_events
from quarterdeck.runs.actions import rules, store
from quarterdeck.runs.actions.model import ActionBody, ActionData, CallAction, NewAction, RememberedTool
from quarterdeck.webhooks import outbox
from quarterdeck.webhooks.model import WebhookEvent


async def open_actions(
    connection: Connection,
    *,
    session_id: UUID,
    run_id: UUID,
    workspace_id: UUID,
    new: Sequence[NewAction],
    settings: ActionSettings,
) -> None:
    """Stores the actions. The caller makes the run wait in the same transaction."""
    opened = [
        await store.add(
            connection, new_id(), workspace_id, session_id, run_id, one, rules.expiry_seconds(one.kind, settings)
        )
        for one in new
    ]
    names = ("kind", "call_id", "tool", "arguments", "reached", "reason", "expires_at")
    await _report(connection, workspace_id, opened, EventType.ACTION_REQUIRED, names)


async def cancel_actions(connection: Connection, run_id: UUID, workspace_id: UUID) -> None:
    """Closes the open actions of a run that is being cancelled."""
    await report_closed(connection, workspace_id, await store.cancel(connection, run_id))


async def actions_of_call(connection: Connection, run_id: UUID, step: int, call_id: str) -> list[CallAction]:
    """The actions of a call that the answer number `step` made, oldest first."""
    return await store.of_call(connection, run_id, step, call_id)


async def remembered_tools(connection: Connection, session_id: UUID) -> frozenset[RememberedTool]:
    return await store.remembered_tools(connection, session_id)


async def purge(connection: Connection, session_id: UUID, batch: int) -> int:
    """Deletes a batch of the actions of a deleted session. Returns their number."""
    return await store.purge(connection, session_id, batch)


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
    subscribers = await outbox.subscribers(connection, workspace_id, event)
    for action in actions:
        fields = {name: getattr(action, name) for name in names}
        data = msgspec.to_builtins({"action_id": action.id} | fields)
        await events.append(connection, action.session_id, action.run_id, [NewEvent(event_type, data)])
        if subscribers:
            whole = ActionData(**msgspec.structs.asdict(action), workspace_id=workspace_id)
            await outbox.add_deliveries(connection, subscribers, event, action.run_id, whole)
    await announce_events(connection, {action.session_id for action in actions})
