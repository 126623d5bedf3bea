"""What a caller asked for, read but not yet judged.

A fault in the request is remembered here instead of being raised where it is found, because the order of checks
is a promise: an unknown credential wins over a bad path, and an invisible object over a bad body.
"""

from collections.abc import Awaitable, Callable, Collection
from enum import Enum
from typing import Generic, TypeVar
from uuid import UUID

from msgspec import Struct

from quarterdeck import errors, etags
from quarterdeck.access import store
from quarterdeck.access.last_used import LastUsed
from quarterdeck.access.model import Credential, Permission, Principal
from quarterdeck.audit.model import Origin
from quarterdeck.db.database import Connection
from quarterdeck.errors import ServiceError
from quarterdeck.rate_limits.allowance import Allowance

Body = TypeVar("Body")
Subject = TypeVar("Subject")


class Call(Struct, Generic[Body], frozen=True):
    credential: Credential
    workspace_id: UUID | None
    idempotency_key: str | None
    # The first fault of path, query and headers.
    fault: ServiceError | None
    # Raises the fault of the body, if it has one.
    read_body: Callable[[], Body]
    allowance: Allowance
    origin: Origin = Origin()
    # The tags of If-Match, or None.
    if_match: frozenset[str] | None = None

    def check_unchanged(self, revision: int) -> None:
        """`revision` is that of a row which is locked: what holds now holds until the transaction ends."""
        if self.if_match is not None and not etags.matches(self.if_match, etags.etag(revision)):
            raise errors.precondition_failed()


class Hold(Enum):
    """How a change holds the credential that it is made with: beside others, or, if it may end that very one, alone."""

    SHARED = "shared"
    ALONE = "alone"


See = Callable[[Connection, Principal], Awaitable[Subject]]


async def admit(
    connection: Connection,
    last_used: LastUsed,
    call: Call[Body],
    see: See[Subject],
    permission: Permission | None,
    *,
    hold: Hold | None = None,
) -> tuple[Principal, Subject]:
    """401 → 429 → 400 of path, query and headers → 404 → 403, in this order for every operation. `hold` keeps the
    credential from being revoked before the transaction ends: nothing is written by a key after its revocation."""
    if hold is not None:
        await store.hold(connection, call.credential, alone=hold is Hold.ALONE)
    found = (await store.find_principals(connection, [call.credential])).get(call.credential)
    return await judge(connection, last_used, call, found, see, permission)


async def judge(
    connection: Connection,
    last_used: LastUsed,
    call: Call[Body],
    principal: Principal | None,
    see: See[Subject],
    permission: Permission | None,
) -> tuple[Principal, Subject]:
    """The same for a caller that was looked up."""
    if principal is None:
        call.allowance.void(call.credential)
        raise errors.unauthorized()
    await call.allowance.settle(call.credential, principal)
    if principal.session_id is None:
        last_used.note(principal.api_key_id)
    if call.fault is not None:
        raise call.fault
    subject = await see(connection, principal)
    if permission is not None and not principal.may(permission):
        raise errors.forbidden(permission)
    return principal, subject


async def seize(connection: Connection, ids: Collection[UUID]) -> None:
    """Before keys or tokens are ended: what is being done with them ends first, and nothing more begins."""
    await store.seize(connection, ids)


async def find_principals(connection: Connection, credentials: Collection[Credential]) -> dict[Credential, Principal]:
    """Whose of these credentials are alive, for those who were admitted earlier and have not left since."""
    return await store.find_principals(connection, credentials)


def see_workspace(named: UUID | None) -> See[UUID]:
    """The workspace that the caller names, or its own."""

    async def see(_: Connection, principal: Principal) -> UUID:
        if not principal.may_see_workspace(named):
            raise errors.not_found("workspace")
        return principal.workspace_id

    return see
