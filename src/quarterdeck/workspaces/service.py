"""Operations of the operator, who needs no credential: they run on the database itself, by `qd admin`."""

from uuid import UUID

from msgspec import Struct

from quarterdeck import errors
from quarterdeck.access.model import Permission
from quarterdeck.api_keys import service as api_keys
from quarterdeck.api_keys.model import ApiKeyBody, CreateApiKeyBody, CreatedApiKeyBody
from quarterdeck.db.database import Connection
from quarterdeck.ids import new_id
from quarterdeck.workspaces import store

_FIRST_NAME = "First workspace"
_FIRST_OWNER = "owner@localhost"
_FIRST_LABEL = "First key"


class FirstStart(Struct, frozen=True):
    workspace_id: UUID
    secret: str


async def create_workspace(connection: Connection, name: str, owner_email: str) -> UUID:
    async with connection.transaction():
        return await _add_workspace(connection, name, owner_email)


async def create_key(
    connection: Connection, environment: str, workspace_id: UUID, body: CreateApiKeyBody, as_email: str | None
) -> CreatedApiKeyBody:
    async with connection.transaction():
        creator = await _lock_workspace(connection, workspace_id)
        await api_keys.check_expiry(connection, workspace_id, body.expires_at)
        if as_email is not None:
            creator = await _member(connection, workspace_id, as_email)
        return await api_keys.issue_api_key(connection, environment, workspace_id, creator, body)


async def add_member(connection: Connection, workspace_id: UUID, email: str) -> UUID:
    async with connection.transaction():
        await _lock_workspace(connection, workspace_id)
        user_id = await store.add_user(connection, new_id(), email)
        await store.add_member(connection, workspace_id, user_id)
        return user_id


async def remove_member(
    connection: Connection, workspace_id: UUID, email: str, *, revoke_keys: bool
) -> list[ApiKeyBody]:
    """The keys that person created. They keep working, as they belong to the workspace, unless they are to end.
    Removing somebody who has left already is no error, so that their keys can still be ended."""
    async with connection.transaction():
        owner_id = await _lock_workspace(connection, workspace_id)
        user_id = await _member(connection, workspace_id, email, former=True)
        if user_id == owner_id:
            raise errors.invalid("The owner of a workspace cannot be removed from it.")
        await store.end_member(connection, workspace_id, user_id)
        if revoke_keys:
            await api_keys.revoke_keys_of(connection, workspace_id, user_id)
        return await api_keys.keys_of(connection, workspace_id, user_id)


async def first_start(connection: Connection, environment: str) -> FirstStart | None:
    """A workspace and a key with every permission, if this database has no workspace yet."""
    async with connection.transaction():
        await store.lock_first_start(connection)
        if await store.any_workspace(connection):
            return None
        workspace_id = await _add_workspace(connection, _FIRST_NAME, _FIRST_OWNER)
        owner_id = await _lock_workspace(connection, workspace_id)
        body = CreateApiKeyBody(_FIRST_LABEL, list(Permission))
        created = await api_keys.issue_api_key(connection, environment, workspace_id, owner_id, body)
        assert isinstance(created.secret, str)
        return FirstStart(workspace_id, created.secret)


async def _add_workspace(connection: Connection, name: str, owner_email: str) -> UUID:
    workspace_id = new_id()
    owner_id = await store.add_user(connection, new_id(), owner_email)
    await store.add_workspace(connection, workspace_id, name, owner_id)
    await store.add_member(connection, workspace_id, owner_id)
    return workspace_id


async def _lock_workspace(connection: Connection, workspace_id: UUID) -> UUID:
    owner_id = await store.lock_workspace(connection, workspace_id)
    if owner_id is None:
        raise errors.invalid("There is no workspace with that id.")
    return owner_id


async def _member(connection: Connection, workspace_id: UUID, email: str, *, former: bool = False) -> UUID:
    member = await store.find_member(connection, workspace_id, email)
    if member is None or not (member[1] or former):
        raise errors.invalid(f"{email} is not a member of this workspace.")
    return member[0]
