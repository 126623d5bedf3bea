"""How everything is read: the checks in their promised order, then what is asked for."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from quarterdeck.access.call import Body, Call, See, Subject, judge
from quarterdeck.access.model import Permission, Principal
from quarterdeck.db.database import Connection
from quarterdeck.parts import Parts

Shown = TypeVar("Shown")


async def read(
    parts: Parts,
    call: Call[Body],
    see: See[Subject],
    permission: Permission | None,
    show: Callable[[Connection, Principal, Subject], Awaitable[Shown]],
) -> Shown:
    async def work(connection: Connection, found: Principal | None) -> Shown:
        principal, subject = await judge(connection, parts.last_used, call, found, see, permission)
        return await show(connection, principal, subject)

    return await parts.callers.read(call.credential, work)


async def look(parts: Parts, call: Call[Body], see: See[Subject], permission: Permission | None) -> Subject:
    """What the caller sees is all that it asked for, or all that is to be known before it goes on."""

    async def show(_: Connection, __: Principal, subject: Subject) -> Subject:
        return subject

    return await read(parts, call, see, permission, show)
