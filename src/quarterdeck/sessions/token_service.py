"""Operations on session tokens."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec

from quarterdeck.api_keys.rules import check_expiry, check_life
from quarterdeck.auth.access import Access, Lookup, block_credentials, visible_session
from quarterdeck.changes.audit.model import ObjectType
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.core import errors, secrets
from quarterdeck.core.actors import CredentialKind, Permission, Principal
from quarterdeck.core.call import Answer, Call
from quarterdeck.core.ids import new_id
from quarterdeck.core.pages import PageRequest, take_page
from quarterdeck.core.settings import KeySettings, TokenSettings
from quarterdeck.db.database import Connection
from quarterdeck.sessions import service as sessions
from quarterdeck.sessions import token_store
from quarterdeck.sessions.token_model import (
    CreatedSessionTokenBody,
    CreateSessionTokenBody,
    NewSessionToken,
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


async def list_session_tokens(
    access: Access, call: Call[None], session_id: UUID, request: PageRequest
) -> SessionTokenPage:
    async def show(connection: Connection, _: Principal, __: UUID) -> SessionTokenPage:
        async def fetch(start: UUID, count: int) -> list[SessionTokenBody]:
            return await token_store.page(connection, session_id, start, count, newest_first=request.newest_first)

        items, next_cursor = await take_page(request, fetch)
        return SessionTokenPage(items, next_cursor)

    lookup = visible_session(call.workspace_id, session_id, own_token=False)
    return await access.read(call, lookup, Permission.WORKSPACE_READ, show)


async def create_session_token(
    changes: Changes,
    key_settings: KeySettings,
    token_settings: TokenSettings,
    call: Call[CreateSessionTokenBody],
    session_id: UUID,
) -> Answer:
    async def effect(connection: Connection, principal: Principal, _: UUID, body: CreateSessionTokenBody) -> Made:
        await sessions.prevent_deletion(connection, session_id)
        expires_at = token_expiry(body.expires_at, datetime.now(UTC), principal, token_settings)
        secret = secrets.mint(CredentialKind.SESSION_TOKEN, key_settings.environment)
        token = NewSessionToken(
            id=new_id(),
            session_id=session_id,
            api_key_id=principal.api_key_id,
            secret_hash=secret.hash,
            prefix=secret.prefix,
            label=body.label,
            may_resolve=body.may_resolve,
            expires_at=expires_at,
        )
        await token_store.add(connection, token)
        stored = await token_store.get(connection, session_id, token.id)
        assert stored is not None
        created = CreatedSessionTokenBody(**msgspec.structs.asdict(stored), token=secret.text)
        kept = msgspec.structs.replace(created, token=msgspec.UNSET)
        return Made(
            shown=created, kept=kept, object_id=token.id, object_name=token.prefix, detail=_audit_detail(stored)
        )

    return await changes.perform(
        call,
        operation="create_session_token",
        lookup=visible_session(call.workspace_id, session_id, own_token=False),
        permission=Permission.SESSION_MANAGE,
        resource=(session_id,),
        about=ObjectType.SESSION_TOKEN,
        effect=effect,
    )


async def revoke_session_token(changes: Changes, call: Call[None], session_id: UUID, token_id: UUID) -> Answer:
    """Takes effect at once. Idempotent."""

    async def effect(connection: Connection, _: Principal, token: SessionTokenBody, __: None) -> Made:
        await block_credentials(connection, [token.id])
        changed = await token_store.revoke(connection, session_id, token.id)
        revoked = await token_store.get(connection, session_id, token.id)
        if revoked is None:
            # Deleted with its session after the lookup.
            raise errors.not_found("session token")
        return Made(
            shown=revoked,
            kept=revoked,
            object_id=token.id,
            object_name=token.prefix,
            detail=_audit_detail(token),
            changed=changed,
        )

    return await changes.perform(
        call,
        operation="revoke_session_token",
        lookup=_visible_token(call.workspace_id, session_id, token_id),
        permission=Permission.SESSION_MANAGE,
        resource=(session_id, token_id),
        about=ObjectType.SESSION_TOKEN,
        effect=effect,
    )


def _audit_detail(token: SessionTokenBody) -> dict[str, str | bool | None]:
    return {
        "session_id": str(token.session_id),
        "prefix": token.prefix,
        "label": token.label,
        "may_resolve": token.may_resolve,
    }


def _visible_token(requested_id: UUID | None, session_id: UUID, token_id: UUID) -> Lookup[SessionTokenBody]:
    lookup_session = visible_session(requested_id, session_id, own_token=False)

    async def lookup(connection: Connection, principal: Principal) -> SessionTokenBody:
        await lookup_session(connection, principal)
        token = await token_store.get(connection, session_id, token_id)
        if token is None:
            raise errors.not_found("session token")
        return token

    return lookup
