"""Operations on API keys."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from quarterdeck.api_keys import rules, store
from quarterdeck.api_keys.model import ApiKeyBody, ApiKeyPage, CreateApiKeyBody, CreatedApiKeyBody, RotateApiKeyBody
from quarterdeck.auth.access import Access, Hold, lock_credentials, visible_record, visible_workspace
from quarterdeck.changes.model import ObjectType
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.core import errors, secrets
from quarterdeck.core.actors import CredentialKind, Permission, Principal
from quarterdeck.core.call import Answer, Call
from quarterdeck.core.operation import ErrorCase, operation
from quarterdeck.core.pages import PageRequest
from quarterdeck.core.settings import KeySettings
from quarterdeck.db.database import Connection

_EXCEEDS_CALLER = ErrorCase(
    "exceeds_caller",
    errors.exceeds_caller("A key cannot grant permissions that it does not have: skill.manage."),
    "The new key would have a permission that the calling key lacks, or a longer lifetime.",
    "Request fewer permissions or an earlier expiration, or use another key.",
)


@operation(
    summary="List the API keys of a workspace",
    description="One page per call, newest first unless order=asc. Includes revoked keys.",
    permission=Permission.WORKSPACE_READ,
    success="One page. next_cursor is null on the last page.",
    workspace_required=True,
    hides_forbidden=True,
)
async def list_api_keys(access: Access, call: Call[None], request: PageRequest) -> ApiKeyPage:
    return await access.page(call, visible_workspace(call), ApiKeyPage, request, store.page)


@operation(
    summary="Get an API key",
    permission=Permission.WORKSPACE_READ,
    success="The key, without its secret.",
)
async def get_api_key(access: Access, call: Call[None], api_key_id: UUID) -> ApiKeyBody:
    return await access.find(call, visible_record(call, "API key", store.get, api_key_id))


@operation(
    summary="Create an API key",
    description="The new key can have only permissions of the calling key, and no longer lifetime. If the workspace "
    "has a maximum lifetime, `expires_at` is required and must be within it.",
    permission=Permission.KEY_MANAGE,
    created=True,
    success="The new key, with its secret, which is shown only once.",
    idempotent=True,
    refusals=(_EXCEEDS_CALLER,),
)
async def create_api_key(
    changes: Changes, key_settings: KeySettings, call: Call[CreateApiKeyBody]
) -> Answer[CreatedApiKeyBody]:
    async def effect(connection: Connection, principal: Principal, workspace_id: UUID, body: CreateApiKeyBody) -> Made:
        rules.check_expiry(body.expires_at, datetime.now(UTC))
        await check_maximum(connection, workspace_id, body.expires_at)
        rules.check_within(principal, body.permissions, body.expires_at)
        created = await issue_api_key(connection, key_settings.environment, workspace_id, principal.user_id, body)
        kept = msgspec.structs.replace(created, secret=msgspec.UNSET)
        return Made(
            shown=created, kept=kept, object_id=created.id, object_name=created.label, detail=audit_detail(created)
        )

    return await changes.perform(call, visible_workspace(call), ObjectType.API_KEY, effect)


@operation(
    summary="Rotate an API key",
    description="Creates a new key with the same label, permissions and expiration. The old key works until the "
    "overlap ends; its session tokens keep their own expiration. Both keys share their Idempotency-Keys.",
    permission=Permission.KEY_MANAGE,
    created=True,
    success="The new key, with its secret, which is shown only once.",
    idempotent=True,
    refusals=(
        _EXCEEDS_CALLER,
        ErrorCase(
            "not_rotatable",
            errors.conflict("This key was already rotated. Rotate its replacement."),
            "The key was already rotated, is revoked or has expired.",
            "Rotate its replacement or create a new key.",
        ),
    ),
)
async def rotate_api_key(
    changes: Changes, key_settings: KeySettings, call: Call[RotateApiKeyBody], api_key_id: UUID
) -> Answer[CreatedApiKeyBody]:
    """Create a new key of the same lineage. Receipts belong to the lineage, so the new key finds those of the old
    key."""

    async def effect(connection: Connection, principal: Principal, old: ApiKeyBody, body: RotateApiKeyBody) -> Made:
        await lock_credentials(connection, [old.id])
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
        call, visible_record(call, "API key", store.get, api_key_id), ObjectType.API_KEY, effect, hold=Hold.EXCLUSIVE
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
    body = msgspec.structs.replace(body, permissions=rules.ordered(body.permissions))
    stored = await store.add(connection, workspace_id, created_by, secret, body, lineage_id)
    return CreatedApiKeyBody(**msgspec.structs.asdict(stored), secret=secret.text)


@operation(
    summary="Revoke an API key",
    description="Takes effect immediately, also for session tokens that the key created. Revoking again changes "
    "nothing.",
    permission=Permission.KEY_MANAGE,
    success="The revoked key.",
    idempotent=True,
)
async def revoke_api_key(changes: Changes, call: Call[None], api_key_id: UUID) -> Answer[ApiKeyBody]:
    async def effect(connection: Connection, principal: Principal, key: ApiKeyBody, _: None) -> Made:
        await lock_credentials(connection, [key.id])
        changed = await store.revoke(connection, principal.workspace_id, key.id)
        revoked = await store.get(connection, principal.workspace_id, key.id)
        assert revoked is not None
        return Made.plain(revoked, key.id, key.label, changed, label=key.label)

    return await changes.perform(
        call, visible_record(call, "API key", store.get, api_key_id), ObjectType.API_KEY, effect, hold=Hold.EXCLUSIVE
    )


async def revoke_keys_of(connection: Connection, workspace_id: UUID, user_id: UUID) -> list[UUID]:
    """Returns the ids of the keys that were valid until now."""
    revoked: list[UUID] = []
    # Repeated: while this waits for transactions of a key, that key can create another one.
    while active := await store.active_of_user(connection, workspace_id, user_id):
        await lock_credentials(connection, active)
        revoked += await store.revoke_all(connection, workspace_id, active)
    return revoked


keys_of = store.of_user


def audit_detail(key: ApiKeyBody) -> dict[str, Any]:
    return {"label": key.label, "prefix": key.prefix, "permissions": key.permissions}
