"""Admission: the first half of the order of checks, for every operation."""

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Concatenate, ParamSpec, TypeVar, cast
from uuid import UUID

from quarterdeck.auth import store
from quarterdeck.auth.last_used import LastUsed
from quarterdeck.core import errors
from quarterdeck.core.actors import Principal, without_emails
from quarterdeck.core.call import Body, Call
from quarterdeck.core.pages import Identified, Item, PageRequest, take_page
from quarterdeck.db.database import Connection, Database

Subject = TypeVar("Subject")
Shown = TypeVar("Shown")
Ids = ParamSpec("Ids")
# Finds the object an operation is about, or raises not_found if the caller cannot see it.
Lookup = Callable[[Connection, Principal], Awaitable[Subject]]


class Hold(Enum):
    """How a transaction locks the credential it uses. EXCLUSIVE is for operations that may revoke that credential."""

    SHARED = "shared"
    EXCLUSIVE = "exclusive"


class Access:
    def __init__(self, database: Database, last_used: LastUsed) -> None:
        self._database = database
        self._last_used = last_used

    async def admit(
        self,
        connection: Connection,
        call: Call[Body],
        lookup: Lookup[Subject],
        *,
        hold: Hold | None = None,
        locks_workspace: bool = False,
    ) -> tuple[Principal, Subject]:
        """Check 401 → 429 → 400 of path, query and headers → 404 → 403, in this order. `hold` keeps the credential
        from being revoked before the transaction ends, so that no key writes anything after its revocation.
        `locks_workspace` keeps roles from being changed. That lock comes first: whoever removes a member holds it and
        waits for the member's credentials."""
        locked_id = await store.lock_workspace(connection, call.credential) if locks_workspace else None
        if hold is not None:
            await store.hold(connection, call.credential, exclusive=hold is Hold.EXCLUSIVE)
        principal = (await store.find_principals(connection, [call.credential])).get(call.credential)
        if principal is None:
            call.rate_limit.forget(call.credential)
            raise errors.unauthorized()
        if locks_workspace and locked_id != principal.workspace_id:
            # Of a device that names no workspace: its person has just left the one that was locked.
            raise errors.locked()
        await call.rate_limit.charge(call.credential, principal)
        if principal.session_id is None:
            self._last_used.note(principal.credential_id)
        if call.fault is not None:
            raise call.fault
        subject = await lookup(connection, principal)
        for permission in call.operation.permissions:
            if not principal.may(permission):
                raise errors.not_found("workspace") if call.operation.hides_forbidden else errors.forbidden(permission)
        return principal, subject

    async def read(
        self,
        call: Call[Body],
        lookup: Lookup[Subject],
        show: Callable[[Connection, Principal, Subject], Awaitable[Shown]],
    ) -> Shown:
        async def work(connection: Connection) -> Shown:
            principal, subject = await self.admit(connection, call, lookup)
            shown = await show(connection, principal, subject)
            return shown if principal.may_see_emails else cast(Shown, without_emails(shown))

        return await self._database.read(work, owner=call.owner)

    async def page(
        self,
        call: Call[Body],
        lookup: Lookup[UUID] | Lookup[Identified],
        kind: Callable[[list[Item], UUID | None], Shown],
        request: PageRequest,
        fetch: Callable[..., Awaitable[list[Item]]],
        **filters: object,
    ) -> Shown:
        """A page of a list that belongs to the object: see `take_page`. `fetch` gets the id of the object."""

        async def show(connection: Connection, _: Principal, subject: UUID | Identified) -> Shown:
            scope_id = subject if isinstance(subject, UUID) else subject.id
            return kind(*await take_page(request, fetch, connection, scope_id, **filters))

        return await self.read(call, cast("Lookup[UUID | Identified]", lookup), show)

    async def find(self, call: Call[Body], lookup: Lookup[Subject]) -> Subject:
        """Admit the caller and return the object, without reading anything else."""

        async def work(connection: Connection) -> Subject:
            principal, subject = await self.admit(connection, call, lookup)
            return subject if principal.may_see_emails else cast(Subject, without_emails(subject))

        return await self._database.read(work, owner=call.owner)


# Before keys or tokens are revoked: waits for transactions that use them, and keeps new ones from starting.
lock_credentials = store.block
# For callers that were admitted earlier.
find_principals = store.find_principals


def visible_workspace(call: Call[Body]) -> Lookup[UUID]:
    """The workspace that the caller names, or its own."""

    async def lookup(_: Connection, principal: Principal) -> UUID:
        if not principal.may_see_workspace(call.workspace_id):
            raise errors.not_found("workspace")
        return principal.workspace_id

    return lookup


def own_person(noun: str) -> Lookup[UUID]:
    """The person of the calling device. What belongs to a person and not to a workspace is hidden from keys."""

    async def lookup(_: Connection, principal: Principal) -> UUID:
        if principal.device_id is None:
            raise errors.not_found(noun)
        return principal.user_id

    return lookup


def _is_for_job(call: Call[Body], principal: Principal, *ids: object) -> bool:
    is_named = call.workspace_id in (None, principal.workspace_id)
    return call.operation.trusted_job and is_named and ids[0] == principal.skill_id


def visible_record(
    call: Call[Body],
    noun: str,
    get: Callable[Concatenate[Connection, UUID, Ids], Awaitable[Subject | None]],
    *ids: Ids.args,
    **named: Ids.kwargs,
) -> Lookup[Subject]:
    """The record of the caller's workspace that `get` finds by its id."""

    async def lookup(connection: Connection, principal: Principal) -> Subject:
        if principal.may_see_workspace(call.workspace_id) or _is_for_job(call, principal, *ids):
            found = await get(connection, principal.workspace_id, *ids, **named)
            if found is not None:
                return found
        raise errors.not_found(noun)

    return lookup


# The rule that decides whether a caller can see a session.


def is_session_visible(
    principal: Principal, session_id: UUID, workspace_id: UUID | None, requested_id: UUID | None, *, own_token: bool
) -> bool:
    """`workspace_id` is the session's, or None if there is no such session. `requested_id` is the caller's
    Service-Workspace. `own_token` says whether the operation is open to the session's own tokens."""
    if principal.trusted_job_id is not None:
        return False
    if principal.session_id is not None and not (own_token and principal.session_id == session_id):
        return False
    return workspace_id == principal.workspace_id and requested_id in (None, workspace_id)


def visible_session(call: Call[Body], session_id: UUID) -> Lookup[UUID]:
    own_token = call.operation.session_token

    async def lookup(connection: Connection, principal: Principal) -> UUID:
        workspace_id = await store.workspace_of(connection, session_id)
        if is_session_visible(principal, session_id, workspace_id, call.workspace_id, own_token=own_token):
            return session_id
        raise errors.not_found("session")

    return lookup
