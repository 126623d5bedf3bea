"""Workspaces. Callers of the API can read them, and set limits and retention. The operator changes them with
`qd admin`, directly in the database and without a credential. These changes are recorded in the audit log too.
"""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from msgspec import UNSET, Struct, UnsetType, to_builtins
from msgspec.structs import asdict, replace

from quarterdeck.agents.configuration import Limit
from quarterdeck.api_keys import service as api_keys
from quarterdeck.api_keys.model import CreateApiKeyBody, CreatedApiKeyBody
from quarterdeck.api_keys.rules import check_expiry
from quarterdeck.auth.access import Access, visible_workspace
from quarterdeck.changes.audit_log import record_operator_change
from quarterdeck.changes.model import Change, ObjectType
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission, Principal, Role
from quarterdeck.core.call import Answer, Call
from quarterdeck.core.ids import new_id
from quarterdeck.core.operation import ErrorCase, operation
from quarterdeck.core.retention import RetentionDays, retention_in_force
from quarterdeck.core.settings import KeySettings, SignInSettings
from quarterdeck.db.database import Connection, Database
from quarterdeck.people import invitations, members, profiles
from quarterdeck.sessions.rules import changed_limit
from quarterdeck.workspaces import store
from quarterdeck.workspaces.model import (
    ChangeWorkspaceBody,
    SetRetention,
    WorkspaceBody,
    WorkspaceLimits,
)

_MAY_NOT_EXPIRE = "To change the retention of runs, events or files, the permission session.manage is needed too."


_FIRST_NAME = "First workspace"
_FIRST_OWNER = "owner@localhost"
# Session tokens see names but no email addresses.
_FIRST_OWNER_NAME = "Owner"
_FIRST_LABEL = "First key"
_UNCHANGED = SetRetention()


class FirstStart(Struct, frozen=True):
    workspace_id: UUID
    secret: str
    # The token of the link.
    invitation: str


@operation(
    summary="Get the workspace",
    description="The workspace of the key.",
    permission=Permission.WORKSPACE_READ,
    success="The workspace.",
    etag=True,
)
async def get_workspace(access: Access, defaults: RetentionDays, call: Call[None]) -> WorkspaceBody:
    async def show(connection: Connection, _: Principal, workspace_id: UUID) -> WorkspaceBody:
        return await show_workspace(connection, workspace_id, defaults)

    return await access.read(call, visible_workspace(call), show)


@operation(
    summary="Change the workspace",
    description="Sets limits of cost and tokens per day (UTC), which are checked before each step of a run, and for "
    "how many days data is kept. Expired data is deleted within about an hour and cannot be restored. To change "
    "`run_days`, `event_days` or `file_days`, the key needs `session.manage` too.",
    permission=Permission.KEY_MANAGE,
    reads=True,
    success="The updated workspace.",
    etag=True,
    conditional=True,
    idempotent=True,
    refusals=(
        ErrorCase(
            "may_not_expire",
            errors.exceeds_caller(_MAY_NOT_EXPIRE),
            "The request changes the retention of runs, events or files, and the key lacks `session.manage`.",
            "Use a key with both permissions, or leave these three out.",
        ),
    ),
)
async def change_workspace(
    changes: Changes, defaults: RetentionDays, call: Call[ChangeWorkspaceBody]
) -> Answer[WorkspaceBody]:
    """A request that changes nothing keeps the revision and writes no audit entry."""

    async def effect(
        connection: Connection, principal: Principal, workspace_id: UUID, body: ChangeWorkspaceBody
    ) -> Made:
        owner_id = await members.lock_workspace(connection, workspace_id)
        before = await show_workspace(connection, workspace_id, defaults)
        call.check_unchanged(before.revision)
        limits, retention = before.limits, before.retention
        if body.limits is not UNSET and body.limits.day is not UNSET:
            limits = WorkspaceLimits(day=changed_limit(before.limits.day, body.limits.day))
        if body.retention is not UNSET:
            retention = await _changed_retention(connection, retention, body.retention)
            _check_may_expire(principal, before.retention, retention)
        if (limits, retention) == (before.limits, before.retention):
            return Made.plain(before, workspace_id, None, False)
        await store.change(connection, workspace_id, before.name, before.max_key_days, owner_id, limits.day, retention)
        after = await show_workspace(connection, workspace_id, defaults)
        return Made.plain(after, workspace_id, after.name, **_changed_detail(before, after))

    return await changes.perform(call, visible_workspace(call), ObjectType.WORKSPACE, effect, locks_workspace=True)


# --- operator ---


async def retention_of_all(database: Database, defaults: RetentionDays) -> dict[UUID, RetentionDays]:
    """What applies to each workspace, without `audit_days`: the database decides about audit events."""
    found = await database.read(store.retention_of_all)
    return {workspace_id: retention_in_force(own, defaults) for workspace_id, own in found.items()}


async def show_workspace(connection: Connection, workspace_id: UUID, defaults: RetentionDays) -> WorkspaceBody:
    """`defaults`: the retention by the settings of the server."""
    workspace = await store.get(connection, workspace_id, defaults)
    if workspace is None:
        raise errors.invalid("There is no workspace with this ID.")
    return workspace


all_workspaces = store.all_workspaces


async def create_workspace(connection: Connection, name: str, owner_email: str) -> UUID:
    async with connection.transaction():
        return await _add_workspace(connection, name, owner_email)


async def configure_workspace(
    connection: Connection,
    workspace_id: UUID,
    *,
    name: str | UnsetType = UNSET,
    max_key_days: int | UnsetType | None = UNSET,
    owner_email: str | UnsetType = UNSET,
    daily_max_cost_usd: float | UnsetType | None = UNSET,
    daily_max_tokens: int | UnsetType | None = UNSET,
    retention: SetRetention = _UNCHANGED,
) -> None:
    """Fields that are not given keep their values. A former owner becomes an admin."""
    async with connection.transaction():
        owner_id = await members.lock_workspace(connection, workspace_id)
        if owner_email is not UNSET:
            owner_id = await members.hand_over(connection, workspace_id, owner_id, owner_email)
        before = await _stored(connection, workspace_id)
        day = before.limits.day
        await store.change(
            connection,
            workspace_id,
            before.name if name is UNSET else name,
            before.max_key_days if max_key_days is UNSET else max_key_days,
            owner_id,
            Limit(
                day.max_cost_usd if daily_max_cost_usd is UNSET else daily_max_cost_usd,
                day.max_tokens if daily_max_tokens is UNSET else daily_max_tokens,
            ),
            await _changed_retention(connection, before.retention, retention),
        )
        after = await _stored(connection, workspace_id)
        if detail := _changed_detail(before, after):
            change = Change("change_workspace", ObjectType.WORKSPACE, workspace_id, detail, after.name)
            await record_operator_change(connection, workspace_id, change)


async def create_key(
    connection: Connection, environment: str, workspace_id: UUID, body: CreateApiKeyBody, as_email: str | None
) -> CreatedApiKeyBody:
    check_expiry(body.expires_at, datetime.now(UTC))
    async with connection.transaction():
        creator = await members.lock_workspace(connection, workspace_id)
        await api_keys.check_maximum(connection, workspace_id, body.expires_at)
        if as_email is not None:
            creator = await members.current_by_email(connection, workspace_id, as_email)
        return await _add_key(connection, environment, workspace_id, creator, body)


async def first_start(connection: Connection, keys: KeySettings, sign_in: SignInSettings) -> FirstStart | None:
    """Create a workspace, a key with all permissions, and a link with which the owner chooses a password, unless the
    database has a workspace already."""
    async with connection.transaction():
        await store.lock_first_start(connection)
        if await store.any_workspace(connection):
            return None
        workspace_id = await _add_workspace(connection, _FIRST_NAME, _FIRST_OWNER)
        owner_id = await members.lock_workspace(connection, workspace_id)
        await profiles.name_by_operator(connection, _FIRST_OWNER, _FIRST_OWNER_NAME)
        body = CreateApiKeyBody(_FIRST_LABEL, list(Permission))
        created = await _add_key(connection, keys.environment, workspace_id, owner_id, body)
        assert isinstance(created.secret, str)
        invitation = await invitations.account_link(connection, keys, sign_in, _FIRST_OWNER)
        return FirstStart(workspace_id, created.secret, invitation)


async def _add_workspace(connection: Connection, name: str, owner_email: str) -> UUID:
    workspace_id = new_id()
    owner_id = await members.account_with(connection, owner_email)
    await store.add_workspace(connection, workspace_id, name, owner_id)
    await members.join(connection, workspace_id, owner_id, Role.OWNER)
    detail = _audit_detail(await _stored(connection, workspace_id))
    change = Change("create_workspace", ObjectType.WORKSPACE, workspace_id, detail, name)
    await record_operator_change(connection, workspace_id, change)
    return workspace_id


async def _add_key(
    connection: Connection, environment: str, workspace_id: UUID, creator: UUID, body: CreateApiKeyBody
) -> CreatedApiKeyBody:
    created = await api_keys.issue_api_key(connection, environment, workspace_id, creator, body)
    detail = api_keys.audit_detail(created)
    change = Change("create_api_key", ObjectType.API_KEY, created.id, detail, created.label)
    await record_operator_change(connection, workspace_id, change)
    return created


async def _stored(connection: Connection, workspace_id: UUID) -> WorkspaceBody:
    """For operations that do not show it: the retention in force is that of a server without defaults."""
    return await show_workspace(connection, workspace_id, RetentionDays())


def _check_may_expire(principal: Principal, own: RetentionDays, wanted: RetentionDays) -> None:
    """A short retention deletes conversations, as deleting sessions does. null counts too: the server may delete
    earlier than the workspace does."""
    before, after = ((each.run_days, each.event_days, each.file_days) for each in (own, wanted))
    if before != after and not principal.may(Permission.SESSION_MANAGE):
        raise errors.exceeds_caller(_MAY_NOT_EXPIRE)


async def _changed_retention(connection: Connection, own: RetentionDays, change: SetRetention) -> RetentionDays:
    """A workspace can keep audit events longer than the server, not shorter: its managers must not be able to remove
    what they did."""
    server_days = await store.server_audit_days(connection)
    if change.audit_days and server_days is not None and change.audit_days < server_days:
        raise errors.invalid(f"retention.audit_days must be at least {server_days}, the setting of the server.")
    return replace(own, **{kind: days for kind, days in asdict(change).items() if days is not UNSET})


def _changed_detail(before: WorkspaceBody, after: WorkspaceBody) -> dict[str, Any]:
    old = _audit_detail(before)
    return {field: value for field, value in _audit_detail(after).items() if value != old[field]}


def _audit_detail(workspace: WorkspaceBody) -> dict[str, Any]:
    return {
        "name": workspace.name,
        "max_key_days": workspace.max_key_days,
        "owner": workspace.owner.primary_email,
        "limits": to_builtins(workspace.limits),
        "retention": workspace.retention.set_days(),
    }
