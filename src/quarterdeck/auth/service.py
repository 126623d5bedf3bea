"""Describes the calling credential: for whoami, and for the log of a session."""

from quarterdeck.auth import store
from quarterdeck.auth.access import Access
from quarterdeck.auth.model import CallerBody
from quarterdeck.core import errors
from quarterdeck.core.actors import Caller, Principal
from quarterdeck.core.call import Call
from quarterdeck.core.operation import operation
from quarterdeck.db.database import Connection


@operation(
    summary="Get the caller",
    description="The credential of the request: its permissions, workspace, expiration and person. Available to "
    "every credential.",
    permission=None,
    success="The credential, without its secret.",
    session_token=True,
)
async def whoami(access: Access, call: Call[None]) -> CallerBody:
    async def lookup(_: Connection, principal: Principal) -> None:
        if call.workspace_id not in (None, principal.workspace_id):
            raise errors.not_found("workspace")

    async def show(connection: Connection, principal: Principal, _: None) -> CallerBody:
        caller = await store.caller(connection, principal)
        if caller is None:
            raise errors.unauthorized()
        return caller

    return await access.read(call, lookup, show)


async def caller_of(connection: Connection, principal: Principal) -> Caller:
    """The caller as the session's log names it."""
    caller = await store.caller_of(connection, principal)
    if caller is None:
        raise errors.unauthorized()
    return caller
