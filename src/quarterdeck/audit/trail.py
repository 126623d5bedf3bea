"""Writing down a change, in the transaction that makes it: neither is there without the other."""

from uuid import UUID

from quarterdeck.audit import store
from quarterdeck.audit.model import Change
from quarterdeck.core.actors import Origin, Principal
from quarterdeck.core.ids import new_id
from quarterdeck.db.database import Connection


async def record(connection: Connection, principal: Principal, origin: Origin, change: Change) -> None:
    await store.add(connection, new_id(), principal.workspace_id, change, principal, origin)


async def record_of_operator(connection: Connection, workspace_id: UUID, change: Change) -> None:
    """By `qd admin`, which needs no credential."""
    await store.add(connection, new_id(), workspace_id, change, None, Origin())
