"""The members of a workspace and their roles. What a person may do ends with the membership: `find_principals()` checks
it for each request and each open stream.

All changes hold the lock of the workspace. Every workspace has an owner, so the last one keeps the role.
"""

from uuid import UUID

from quarterdeck.api_keys import service as api_keys
from quarterdeck.api_keys.model import ApiKeyBody
from quarterdeck.auth.access import Access, Hold, Lookup, lock_credentials, own_person, visible_workspace
from quarterdeck.changes.audit_log import record_change, record_operator_change
from quarterdeck.changes.model import Change, ObjectType
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission, Principal, Role
from quarterdeck.core.call import Answer, Call
from quarterdeck.core.ids import LOWEST_ID
from quarterdeck.core.operation import ErrorCase, operation
from quarterdeck.core.pages import PageRequest
from quarterdeck.db.database import Connection
from quarterdeck.people import rules, store
from quarterdeck.people.model import ChangeMemberBody, MemberBody, MemberPage
from quarterdeck.sessions.token_service import revoke_tokens_of
from quarterdeck.trusted_jobs.service import end_jobs_of

_OWNERS_ONLY = ErrorCase(
    "owners_only",
    rules.owners_only(),
    "The member is an owner, or would become one, and the caller is none.",
    "Ask an owner.",
)
BEYOND_KEY = ErrorCase(
    "beyond_key",
    rules.beyond_key(),
    "The role has permissions that the calling key lacks.",
    "Use a key with more permissions, or sign in.",
)
_LAST_OWNER = ErrorCase(
    "last_owner",
    errors.conflict(errors.LAST_OWNER),
    "The workspace would have no owner.",
    "Make another member an owner first.",
)


@operation(
    summary="List the members of the workspace",
    description="One page per call, newest users first unless order=asc. Includes former members.",
    permission=Permission.WORKSPACE_READ,
    success="One page. next_cursor is null on the last page.",
)
async def list_members(access: Access, call: Call[None], request: PageRequest) -> MemberPage:
    return await access.page(call, visible_workspace(call), MemberPage, request, store.members)


@operation(
    summary="Change the role of a member",
    description="Takes effect immediately, also for the person's keys, session tokens and open event streams: they "
    "never allow more than the role.",
    permission=Permission.MEMBER_MANAGE,
    reads=True,
    success="The member.",
    idempotent=True,
    refusals=(_OWNERS_ONLY, BEYOND_KEY, _LAST_OWNER),
)
async def change_member(changes: Changes, call: Call[ChangeMemberBody], member_id: UUID) -> Answer[MemberBody]:
    async def effect(connection: Connection, principal: Principal, member: MemberBody, body: ChangeMemberBody) -> Made:
        rules.check_may_change(principal.role, member.role)
        await check_may_give(connection, principal, body.role)
        changed = await set_role(connection, principal.workspace_id, member_id, body.role)
        after = await _current(connection, principal.workspace_id, member_id)
        detail = {"email": member.user.primary_email, "role": body.role, "before": member.role}
        return Made.plain(after, member_id, _name(member), changed, **detail)

    lookup = _visible_member(call, member_id)
    return await changes.perform(call, lookup, ObjectType.MEMBER, effect, hold=Hold.EXCLUSIVE, locks_workspace=True)


@operation(
    summary="Remove a member",
    description="Ends the person's keys, session tokens, open streams and sign-ins in this workspace. What the person "
    "has created stays. Invite them again to undo it; keys stay revoked.",
    permission=Permission.MEMBER_MANAGE,
    success="The person was removed.",
    refusals=(_OWNERS_ONLY, _LAST_OWNER),
)
async def remove_member(changes: Changes, call: Call[None], member_id: UUID) -> Answer[None]:
    async def effect(connection: Connection, principal: Principal, member: MemberBody, _: None) -> Made:
        rules.check_may_change(principal.role, member.role)
        await _end(connection, call, principal, member_id)
        return Made.plain(None, member_id, _name(member), True, email=member.user.primary_email)

    lookup = _visible_member(call, member_id)
    return await changes.perform(call, lookup, ObjectType.MEMBER, effect, hold=Hold.EXCLUSIVE, locks_workspace=True)


@operation(
    summary="Leave the workspace",
    description="Ends the membership of the calling person, with their keys and session tokens in this workspace.",
    permission=None,
    personal=True,
    success="The person has left.",
    refusals=(_LAST_OWNER,),
)
async def leave_workspace(changes: Changes, call: Call[None]) -> Answer[None]:
    async def lookup(connection: Connection, principal: Principal) -> UUID:
        await visible_workspace(call)(connection, principal)
        return await own_person("workspace")(connection, principal)

    async def effect(connection: Connection, principal: Principal, user_id: UUID, _: None) -> Made:
        member = await _current(connection, principal.workspace_id, user_id)
        await _end(connection, call, principal, user_id)
        return Made.plain(None, user_id, _name(member), True, email=member.user.primary_email)

    return await changes.perform(call, lookup, ObjectType.MEMBER, effect, hold=Hold.EXCLUSIVE, locks_workspace=True)


async def check_may_give(connection: Connection, principal: Principal, role: Role) -> None:
    rules.check_may_give(principal, role, await store.permissions_of(connection, role))


# For changes by others, who hold the lock of the workspace.


async def join(
    connection: Connection, workspace_id: UUID, user_id: UUID, role: Role, given_by: str | None = None
) -> bool:
    """False if the person is a member already; the role stays. `given_by`: an issuer, or None for people."""
    return await store.add_member(connection, workspace_id, user_id, role, given_by)


async def set_role(connection: Connection, workspace_id: UUID, user_id: UUID, role: Role) -> bool:
    changed = await store.set_role(connection, workspace_id, user_id, role)
    await _check_owner(connection, workspace_id)
    return changed


async def end_membership(connection: Connection, workspace_id: UUID, user_id: UUID) -> list[Change] | None:
    """Keys and tokens are revoked, so that they stay ended if the person returns. Returns the changes of keys and
    trusted jobs, for the audit log. None: the person is no member."""
    if not await store.end_member(connection, workspace_id, user_id):
        return None
    await _check_owner(connection, workspace_id)
    revoked = await api_keys.revoke_keys_of(connection, workspace_id, user_id)
    await revoke_tokens_of(connection, workspace_id, user_id)
    # Waits for changes that the person's devices are making now. New ones find no membership.
    await lock_credentials(connection, await store.valid_devices(connection, user_id))
    jobs = await end_jobs_of(connection, workspace_id, user_id)
    return jobs + [
        Change("revoke_api_key", ObjectType.API_KEY, key.id, {"label": key.label}, key.label)
        for key in await api_keys.keys_of(connection, workspace_id, user_id)
        if key.id in revoked
    ]


async def _end(connection: Connection, call: Call[None], principal: Principal, user_id: UUID) -> None:
    for change in await end_membership(connection, principal.workspace_id, user_id) or []:
        await record_change(connection, principal, call.origin, change)


async def _check_owner(connection: Connection, workspace_id: UUID) -> None:
    if not await store.settle_owner(connection, workspace_id):
        raise errors.conflict(errors.LAST_OWNER)


# --- operator ---

account_with = store.add_account


async def lock_workspace(connection: Connection, workspace_id: UUID) -> UUID:
    """Returns the owner who is shown."""
    owner_id = await store.lock_workspace(connection, workspace_id)
    if owner_id is None:
        raise errors.invalid("There is no workspace with this ID.")
    return owner_id


async def hand_over(connection: Connection, workspace_id: UUID, owner_id: UUID, email: str) -> UUID:
    """Makes a member the owner who is shown. The one before becomes an admin. Returns the new one."""
    user_id = await current_by_email(connection, workspace_id, email)
    if user_id != owner_id:
        await set_role(connection, workspace_id, user_id, Role.OWNER)
        await set_role(connection, workspace_id, owner_id, Role.ADMIN)
    return user_id


async def all_members(connection: Connection, workspace_id: UUID) -> list[MemberBody]:
    """Oldest first, including former members."""
    await lock_workspace(connection, workspace_id)
    return await store.members(connection, workspace_id, LOWEST_ID, None, newest_first=False)


async def add_by_operator(connection: Connection, workspace_id: UUID, email: str, role: Role = Role.MEMBER) -> UUID:
    """Idempotent. A former member becomes a member again. The role of a member is changed."""
    async with connection.transaction():
        await lock_workspace(connection, workspace_id)
        user_id = await store.add_account(connection, email)
        added = await join(connection, workspace_id, user_id, role)
        if added or await set_role(connection, workspace_id, user_id, role):
            action = "add_member" if added else "change_member"
            change = Change(action, ObjectType.MEMBER, user_id, {"email": email, "role": role}, email)
            await record_operator_change(connection, workspace_id, change)
        return user_id


async def remove_by_operator(connection: Connection, workspace_id: UUID, email: str) -> list[ApiKeyBody]:
    """Returns the keys that the person has created. Removing a former member is no error."""
    async with connection.transaction():
        await lock_workspace(connection, workspace_id)
        member = await store.member_by_email(connection, workspace_id, email)
        if member is None:
            raise errors.invalid(f"{email} is not a member of this workspace.")
        ended = await end_membership(connection, workspace_id, member.id)
        if ended is not None:
            change = Change("remove_member", ObjectType.MEMBER, member.id, {"email": email}, email)
            for each in (change, *ended):
                await record_operator_change(connection, workspace_id, each)
        return await api_keys.keys_of(connection, workspace_id, member.id)


async def current_by_email(connection: Connection, workspace_id: UUID, email: str) -> UUID:
    member = await store.member_by_email(connection, workspace_id, email)
    if member is None or member.ended_at is not None:
        raise errors.invalid(f"{email} is not a member of this workspace.")
    return member.id


def _visible_member(call: Call[ChangeMemberBody] | Call[None], member_id: UUID) -> Lookup[MemberBody]:
    async def lookup(connection: Connection, principal: Principal) -> MemberBody:
        if not principal.may_see_workspace(call.workspace_id):
            raise errors.not_found("member")
        return await _current(connection, principal.workspace_id, member_id)

    return lookup


async def _current(connection: Connection, workspace_id: UUID, user_id: UUID) -> MemberBody:
    """Not a former one."""
    member = await store.member(connection, workspace_id, user_id)
    return errors.existing(None if member is None or member.ended_at is not None else member, "member")


def _name(member: MemberBody) -> str | None:
    return member.user.display_name or member.user.primary_email
