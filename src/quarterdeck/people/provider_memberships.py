"""Memberships that an OpenID provider gives, by the groups of a person: made equal to what the provider says, again and
again. Those that people gave stay as they are.
"""

from collections.abc import Mapping
from uuid import UUID

from quarterdeck.changes.audit_log import record_operator_change
from quarterdeck.changes.model import Change, ObjectType
from quarterdeck.core import errors
from quarterdeck.core.actors import Role
from quarterdeck.core.logging import fields, log
from quarterdeck.db.database import Connection
from quarterdeck.people import members, provider_store, store
from quarterdeck.people.provider_store import GivenMembership, Identity

_DAY_SECONDS = 24 * 3600


async def set_memberships(
    connection: Connection, identity: Identity, given: Mapping[UUID, Role], keep_seconds: float
) -> None:
    """`given`: what the provider gives now, for `keep_seconds`."""
    found = {one.workspace_id: one for one in await provider_store.memberships(connection, identity.user_id)}
    # In one order, so that two of these do not wait for each other.
    for workspace_id in sorted({*found, *given}):
        if _differs(found.get(workspace_id), identity.issuer, given.get(workspace_id)):
            await _set(connection, identity, workspace_id, given.get(workspace_id))
    await provider_store.set_members_until(connection, identity, keep_seconds)


async def end_memberships(connection: Connection, identity: Identity) -> None:
    await set_memberships(connection, identity, {}, _DAY_SECONDS)
    left = await provider_store.memberships(connection, identity.user_id)
    # That of a last owner is kept, and looked at again after a day.
    if not any(one.given_by == identity.issuer for one in left):
        await provider_store.set_members_until(connection, identity, None)


def _differs(now: GivenMembership | None, issuer: str, role: Role | None) -> bool:
    return role is not None if now is None else now.given_by == issuer and now.role is not role


async def _set(connection: Connection, identity: Identity, workspace_id: UUID, role: Role | None) -> None:
    """`role` None: the provider gives none."""
    user_id = identity.user_id
    about = fields(issuer=identity.issuer, workspace_id=workspace_id, user_id=user_id)
    if await store.lock_workspace(connection, workspace_id) is None:
        log.warning("an OpenID provider gives a role in a workspace that does not exist", extra=about)
        return
    now = await provider_store.membership(connection, workspace_id, user_id)
    if not _differs(now, identity.issuer, role):
        return
    is_owner = now is not None and now.role is Role.OWNER
    if is_owner and not await provider_store.has_other_owner(connection, workspace_id, user_id):
        log.warning("an OpenID provider takes the role from the last owner of a workspace: it is kept", extra=about)
        return
    ended: list[Change] = []
    if role is None:
        action = "remove_member"
        ended = await members.end_membership(connection, workspace_id, user_id) or []
    elif now is None:
        action = "add_member"
        await members.join(connection, workspace_id, user_id, role, identity.issuer)
    else:
        action = "change_member"
        await members.set_role(connection, workspace_id, user_id, role)
    account = errors.existing(await store.account(connection, user_id), "member")
    detail = {"email": account.email, "provider": identity.issuer} | ({} if role is None else {"role": role})
    change = Change(action, ObjectType.MEMBER, user_id, detail, account.display_name or account.email)
    for each in (change, *ended):
        await record_operator_change(connection, workspace_id, each)
