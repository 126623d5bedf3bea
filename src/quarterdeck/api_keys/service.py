"""Operations on API keys."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from quarterdeck.api_keys import rules, store
from quarterdeck.api_keys.model import (
    ApiKeyBody,
    ApiKeyPage,
    CreateApiKeyBody,
    CreatedApiKeyBody,
    NewApiKey,
    RotateApiKeyBody,
)
from quarterdeck.auth.access import Access, Hold, Lookup, block_credentials, visible_workspace
from quarterdeck.changes.audit.model import ObjectType
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.core import errors, secrets
from quarterdeck.core.actors import CredentialKind, Permission, Principal
from quarterdeck.core.call import Answer, Call
from quarterdeck.core.errors import Kind, ServiceError
from quarterdeck.core.ids import new_id
from quarterdeck.core.pages import PageRequest, take_page
from quarterdeck.core.settings import KeySettings
from quarterdeck.db.database import Connection


async def list_api_keys(access: Access, call: Call[None], request: PageRequest) -> ApiKeyPage:
    async def show(connection: Connection, _: Principal, workspace_id: UUID) -> ApiKeyPage:
        async def fetch(start: UUID, count: int) -> list[ApiKeyBody]:
            return await store.page(connection, workspace_id, start, count, newest_first=request.newest_first)

        items, next_cursor = await take_page(request, fetch)
        return ApiKeyPage(items, next_cursor)

    try:
        return await access.read(call, visible_workspace(call.workspace_id), Permission.WORKSPACE_READ, show)
    except ServiceError as fault:
        # The interface has no 403 here: without the permission the workspace is reported as not found.
        if fault.kind is Kind.FORBIDDEN:
            raise errors.not_found("workspace") from None
        raise


async def get_api_key(access: Access, call: Call[None], api_key_id: UUID) -> ApiKeyBody:
    return await access.find(call, _visible_api_key(call.workspace_id, api_key_id), Permission.WORKSPACE_READ)


async def create_api_key(changes: Changes, key_settings: KeySettings, call: Call[CreateApiKeyBody]) -> Answer:
    async def effect(connection: Connection, principal: Principal, workspace_id: UUID, body: CreateApiKeyBody) -> Made:
        rules.check_expiry(body.expires_at, datetime.now(UTC))
        await check_maximum(connection, workspace_id, body.expires_at)
        rules.check_within(principal, body.permissions, body.expires_at)
        created = await issue_api_key(connection, key_settings.environment, workspace_id, principal.user_id, body)
        kept = msgspec.structs.replace(created, secret=msgspec.UNSET)
        return Made(
            shown=created, kept=kept, object_id=created.id, object_name=created.label, detail=audit_detail(created)
        )

    return await changes.perform(
        call,
        operation="create_api_key",
        lookup=visible_workspace(call.workspace_id),
        permission=Permission.KEY_MANAGE,
        resource=(),
        about=ObjectType.API_KEY,
        effect=effect,
    )


async def rotate_api_key(
    changes: Changes, key_settings: KeySettings, call: Call[RotateApiKeyBody], api_key_id: UUID
) -> Answer:
    """Create a new key of the same lineage. Receipts belong to the lineage, so the new key finds those of the old
    key."""

    async def effect(connection: Connection, principal: Principal, old: ApiKeyBody, body: RotateApiKeyBody) -> Made:
        await block_credentials(connection, [old.id])
        locked = await store.lock(connection, principal.workspace_id, old.id)
        rules.check_rotatable(locked)
        max_days = await store.max_days(connection, principal.workspace_id)
        expires_at = rules.rotated_expiry(old.expires_at, datetime.now(UTC), max_days)
        rules.check_within(principal, old.permissions, expires_at)
        created = await issue_api_key(
            connection,
            key_settings.environment,
            principal.workspace_id,
            principal.user_id,
            CreateApiKeyBody(old.label, old.permissions, expires_at),
            lineage_id=locked.lineage_id,
        )
        await store.replace(connection, principal.workspace_id, old.id, created.id, body.overlap_seconds)
        kept = msgspec.structs.replace(created, secret=msgspec.UNSET)
        detail = audit_detail(created) | {"replaced_by": str(created.id), "overlap_seconds": body.overlap_seconds}
        return Made(shown=created, kept=kept, object_id=old.id, object_name=old.label, detail=detail)

    return await changes.perform(
        call,
        operation="rotate_api_key",
        lookup=_visible_api_key(call.workspace_id, api_key_id),
        permission=Permission.KEY_MANAGE,
        resource=(api_key_id,),
        about=ObjectType.API_KEY,
        effect=effect,
        hold=Hold.EXCLUSIVE,
    )


async def check_maximum(connection: Connection, workspace_id: UUID, expires_at: datetime | None) -> None:
    """Check the workspace's maximum key life, which applies to every caller."""
    rules.check_maximum(expires_at, datetime.now(UTC), await store.max_days(connection, workspace_id))


async def issue_api_key(
    connection: Connection,
    environment: str,
    workspace_id: UUID,
    created_by: UUID,
    body: CreateApiKeyBody,
    *,
    lineage_id: UUID | None = None,
) -> CreatedApiKeyBody:
    """Create and store a key. The calling function has checked the permission."""
    secret = secrets.mint(CredentialKind.API_KEY, environment)
    api_key_id = new_id()
    key = NewApiKey(
        id=api_key_id,
        workspace_id=workspace_id,
        lineage_id=lineage_id or api_key_id,
        label=body.label,
        prefix=secret.prefix,
        secret_hash=secret.hash,
        permissions=rules.ordered(body.permissions),
        created_by=created_by,
        expires_at=body.expires_at,
    )
    await store.add(connection, key)
    stored = await store.get(connection, workspace_id, api_key_id)
    assert stored is not None
    return CreatedApiKeyBody(**msgspec.structs.asdict(stored), secret=secret.text)


async def revoke_api_key(changes: Changes, call: Call[None], api_key_id: UUID) -> Answer:
    """Takes effect at once. Idempotent."""

    async def effect(connection: Connection, principal: Principal, key: ApiKeyBody, _: None) -> Made:
        await block_credentials(connection, [key.id])
        changed = await store.revoke(connection, principal.workspace_id, key.id)
        revoked = await store.get(connection, principal.workspace_id, key.id)
        assert revoked is not None
        return Made(
            shown=revoked,
            kept=revoked,
            object_id=key.id,
            object_name=key.label,
            detail={"label": key.label},
            changed=changed,
        )

    return await changes.perform(
        call,
        operation="revoke_api_key",
        lookup=_visible_api_key(call.workspace_id, api_key_id),
        permission=Permission.KEY_MANAGE,
        resource=(api_key_id,),
        about=ObjectType.API_KEY,
        effect=effect,
        hold=Hold.EXCLUSIVE,
    )


async def revoke_keys_of(connection: Connection, workspace_id: UUID, user_id: UUID) -> list[UUID]:
    """Returns the ids of the keys that were valid until now."""
    revoked: list[UUID] = []
    # Repeated: while this waits for transactions of a key, that key can create another one.
    while active := await store.active_of_user(connection, workspace_id, user_id):
        await block_credentials(connection, active)
        revoked += await store.revoke_all(connection, workspace_id, active)
    return revoked


async def keys_of(connection: Connection, workspace_id: UUID, user_id: UUID) -> list[ApiKeyBody]:
    return await store.of_user(connection, workspace_id, user_id)


def audit_detail(key: ApiKeyBody) -> dict[str, Any]:
    return {"label": key.label, "prefix": key.prefix, "permissions": key.permissions}


def _visible_api_key(workspace_id: UUID | None, api_key_id: UUID) -> Lookup[ApiKeyBody]:
    async def lookup(connection: Connection, principal: Principal) -> ApiKeyBody:
        if principal.may_see_workspace(workspace_id):
            key = await store.get(connection, principal.workspace_id, api_key_id)
            if key is not None:
                return key
        raise errors.not_found("API key")

    return lookup
