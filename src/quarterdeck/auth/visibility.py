"""The rule that decides whether a caller can see a session."""

from uuid import UUID

from quarterdeck.auth import visibility_store as store
from quarterdeck.auth.access import Lookup
from quarterdeck.core import errors
from quarterdeck.core.actors import Principal
from quarterdeck.db.database import Connection


def is_session_visible(
    principal: Principal, session_id: UUID, workspace_id: UUID | None, requested_id: UUID | None, *, own_token: bool
) -> bool:
    """`workspace_id` is the session's, or None if there is no such session. `requested_id` is the caller's
    Service-Workspace. `own_token` says whether the operation is open to the session's own tokens."""
    if principal.session_id is not None and not (own_token and principal.session_id == session_id):
        return False
    return workspace_id == principal.workspace_id and requested_id in (None, workspace_id)


def visible_session(requested_id: UUID | None, session_id: UUID, *, own_token: bool) -> Lookup[UUID]:
    async def lookup(connection: Connection, principal: Principal) -> UUID:
        workspace_id = await store.workspace_of(connection, session_id)
        if is_session_visible(principal, session_id, workspace_id, requested_id, own_token=own_token):
            return session_id
        raise errors.not_found("session")

    return lookup
