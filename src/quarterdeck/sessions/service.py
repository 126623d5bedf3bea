"""Operations on sessions and their tokens."""

from datetime import UTC, datetime
from uuid import UUID

import msgspec

from quarterdeck import errors
from quarterdeck.access import secrets
from quarterdeck.access.call import Call, See, see_workspace
from quarterdeck.access.model import CredentialKind, Permission, Principal
from quarterdeck.audit.model import ObjectType
from quarterdeck.db.database import Connection
from quarterdeck.idempotency.service import Answer, Made, perform
from quarterdeck.ids import created_at, new_id
from quarterdeck.parts import Parts
from quarterdeck.sessions import rules, store
from quarterdeck.sessions.model import (
    AgentSetup,
    CreatedSessionTokenBody,
    CreateSessionBody,
    CreateSessionTokenBody,
    SessionBody,
)
from quarterdeck.skills import service as skills


async def create_session(parts: Parts, call: Call[CreateSessionBody]) -> Answer:
    async def effect(connection: Connection, principal: Principal, workspace_id: UUID, body: CreateSessionBody) -> Made:
        rules.check_distinct(body.skills)
        for one in body.skills:
            await skills.check_usable(connection, workspace_id, one.skill_id, one.version)
        session_id = new_id()
        session = SessionBody(
            id=session_id,
            workspace_id=workspace_id,
            title=body.title,
            model=body.model,
            instructions=body.instructions,
            skills=body.skills,
            created_at=created_at(session_id),
        )
        await store.add(connection, session, principal.user_id)
        return Made.plain(session, session_id)

    return await perform(
        parts,
        call,
        operation="create_session",
        see=see_workspace(call.workspace_id),
        permission=Permission.SESSION_MANAGE,
        resource=(),
        about=ObjectType.SESSION,
        effect=effect,
    )


async def create_session_token(parts: Parts, call: Call[CreateSessionTokenBody], session_id: UUID) -> Answer:
    async def effect(connection: Connection, principal: Principal, _: UUID, body: CreateSessionTokenBody) -> Made:
        expires_at = rules.token_expiry(body.expires_at, datetime.now(UTC), principal, parts.settings.token)
        secret = secrets.mint(CredentialKind.SESSION_TOKEN, parts.settings.key.environment)
        token_id = new_id()
        await store.add_token(
            connection, token_id, session_id, principal.api_key_id, secret.hash, secret.prefix, expires_at
        )
        created = CreatedSessionTokenBody(
            id=token_id,
            session_id=session_id,
            prefix=secret.prefix,
            created_at=created_at(token_id),
            expires_at=expires_at,
            token=secret.text,
        )
        kept = msgspec.structs.replace(created, token=msgspec.UNSET)
        detail = {"session_id": str(session_id), "prefix": secret.prefix}
        return Made(shown=created, kept=kept, object_id=token_id, detail=detail)

    return await perform(
        parts,
        call,
        operation="create_session_token",
        see=see_session(call.workspace_id, session_id, own_token=False),
        permission=Permission.SESSION_MANAGE,
        resource=(session_id,),
        about=ObjectType.SESSION_TOKEN,
        effect=effect,
    )


async def agent_setup(connection: Connection, session_id: UUID) -> AgentSetup:
    return await store.agent_setup(connection, session_id)


def see_session(named: UUID | None, session_id: UUID, *, own_token: bool) -> See[UUID]:
    """The session, if the caller sees it; `own_token` says whether its own tokens do for this operation."""

    async def see(connection: Connection, principal: Principal) -> UUID:
        workspace_id = await store.workspace_of(connection, session_id)
        if rules.sees_session(principal, session_id, workspace_id, named, own_token=own_token):
            return session_id
        raise errors.not_found("session")

    return see
