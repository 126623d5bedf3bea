"""Operations on session tokens."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec

from quarterdeck.api_keys.rules import check_expiry, check_life
from quarterdeck.auth.access import Access, Lookup, lock_credentials, visible_session
from quarterdeck.changes.model import ObjectType
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.core import errors, secrets
from quarterdeck.core.actors import CredentialKind, Permission, Principal
from quarterdeck.core.call import Answer, Call
from quarterdeck.core.operation import ErrorCase, operation
from quarterdeck.core.pages import PageRequest
from quarterdeck.core.settings import KeySettings, TokenSettings
from quarterdeck.db.database import Connection
from quarterdeck.sessions import service as sessions
from quarterdeck.sessions import store
from quarterdeck.sessions.model import (
    CreatedSessionTokenBody,
    CreateSessionTokenBody,
    SessionTokenBody,
    SessionTokenPage,
)

# Rules for the life of session tokens.


def token_expiry(requested: datetime | None, now: datetime, principal: Principal, settings: TokenSettings) -> datetime:
    """The requested expiry, checked against the limits. The default is no later than the expiry of the creating key."""
    if requested is None:
        default = now + timedelta(seconds=settings.default_life_seconds)
        return default if principal.expires_at is None else min(default, principal.expires_at)
    check_expiry(requested, now)
    if requested > now + timedelta(seconds=settings.max_life_seconds):
        raise errors.invalid(f"expires_at must be within the next {settings.max_life_seconds} seconds.")
    check_life(principal, requested)
    return requested


@operation(
    summary="List the tokens of a session",
    description="One page per call, newest first unless order=asc. Includes expired and revoked tokens.",
    permission=Permission.WORKSPACE_READ,
    success="One page. next_cursor is null on the last page.",
)
async def list_session_tokens(
    access: Access, call: Call[None], session_id: UUID, request: PageRequest
) -> SessionTokenPage:
    return await access.page(call, visible_session(call, session_id), SessionTokenPage, request, store.page_of_tokens)


@operation(
    summary="Create a token for one session",
    description="The token has no permissions, works only for its session, and ends when the key that created it is "
    "revoked or its person leaves the workspace.",
    permission=Permission.SESSION_MANAGE,
    created=True,
    success="The new token, which is shown only once.",
    idempotent=True,
    refusals=(
        ErrorCase(
            "exceeds_caller",
            errors.exceeds_caller("The lifetime must not exceed that of the calling key."),
            "The token would have a longer lifetime than the calling key.",
            "Request an earlier `expires_at` or omit it.",
        ),
    ),
)
async def create_session_token(
    changes: Changes,
    key_settings: KeySettings,
    token_settings: TokenSettings,
    call: Call[CreateSessionTokenBody],
    session_id: UUID,
) -> Answer[CreatedSessionTokenBody]:
    async def effect(connection: Connection, principal: Principal, _: UUID, body: CreateSessionTokenBody) -> Made:
        await sessions.prevent_deletion(connection, session_id)
        expires_at = token_expiry(body.expires_at, datetime.now(UTC), principal, token_settings)
        secret = secrets.mint(CredentialKind.SESSION_TOKEN, key_settings.environment)
        stored = await store.add_token(connection, session_id, principal, secret, body, expires_at)
        created = CreatedSessionTokenBody(**msgspec.structs.asdict(stored), token=secret.text)
        kept = msgspec.structs.replace(created, token=msgspec.UNSET)
        return Made(
            shown=created, kept=kept, object_id=stored.id, object_name=stored.prefix, detail=_audit_detail(stored)
        )

    return await changes.perform(call, visible_session(call, session_id), ObjectType.SESSION_TOKEN, effect)


@operation(
    summary="Revoke a token of a session",
    description="Takes effect immediately, also for open event streams. Revoking again changes nothing.",
    permission=Permission.SESSION_MANAGE,
    success="The revoked token.",
    idempotent=True,
)
async def revoke_session_token(
    changes: Changes, call: Call[None], session_id: UUID, session_token_id: UUID
) -> Answer[SessionTokenBody]:
    async def effect(connection: Connection, _: Principal, token: SessionTokenBody, __: None) -> Made:
        await lock_credentials(connection, [token.id])
        changed = await store.revoke_token(connection, session_id, token.id)
        # Deleted with its session after the lookup.
        revoked = errors.existing(await store.get_token(connection, session_id, token.id), "session token")
        return Made.plain(revoked, token.id, token.prefix, changed, **_audit_detail(token))

    return await changes.perform(
        call, _visible_token(call, session_id, session_token_id), ObjectType.SESSION_TOKEN, effect
    )


async def revoke_tokens_of(connection: Connection, workspace_id: UUID, user_id: UUID) -> None:
    """Those that were made for the person, with whichever key or device."""
    # Repeated: while this waits for transactions of a device, that device can create another token.
    while ids := await store.tokens_of_user(connection, workspace_id, user_id):
        await lock_credentials(connection, ids)
        await store.revoke_tokens(connection, ids)


def _audit_detail(token: SessionTokenBody) -> dict[str, str | bool | None]:
    return {
        "session_id": str(token.session_id),
        "prefix": token.prefix,
        "label": token.label,
        "may_resolve": token.may_resolve,
    }


def _visible_token(call: Call[None], session_id: UUID, token_id: UUID) -> Lookup[SessionTokenBody]:
    lookup_session = visible_session(call, session_id)

    async def lookup(connection: Connection, principal: Principal) -> SessionTokenBody:
        await lookup_session(connection, principal)
        return errors.existing(await store.get_token(connection, session_id, token_id), "session token")

    return lookup
