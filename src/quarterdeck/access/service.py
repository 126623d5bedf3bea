"""Who the caller is."""

from quarterdeck import errors
from quarterdeck.access import store
from quarterdeck.access.call import Call
from quarterdeck.access.model import CallerBody, Principal
from quarterdeck.access.reading import read
from quarterdeck.db.database import Connection
from quarterdeck.parts import Parts


async def whoami(parts: Parts, call: Call[None]) -> CallerBody:
    """For every credential that is alive, whatever it may do."""

    async def see(_: Connection, principal: Principal) -> None:
        if call.workspace_id not in (None, principal.workspace_id):
            raise errors.not_found("workspace")

    async def show(connection: Connection, principal: Principal, _: None) -> CallerBody:
        caller = await store.caller(connection, principal)
        if caller is None:
            raise errors.unauthorized()
        return caller

    return await read(parts, call, see, None, show)
