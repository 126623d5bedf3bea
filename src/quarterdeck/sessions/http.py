"""Sessions over HTTP."""

from quarterdeck import errors
from quarterdeck.access.model import Permission
from quarterdeck.http.incoming import Incoming
from quarterdeck.http.operation import Refusal, operation
from quarterdeck.idempotency.service import Answer
from quarterdeck.parts import Parts
from quarterdeck.sessions import service
from quarterdeck.sessions.model import CreatedSessionTokenBody, CreateSessionBody, CreateSessionTokenBody, SessionBody


@operation(
    summary="Create a session",
    permission=Permission.SESSION_MANAGE,
    payload=CreateSessionBody,
    success_status=201,
    success_type=SessionBody,
    success="The new session.",
    idempotent=True,
)
async def create_session(parts: Parts, incoming: Incoming) -> Answer:
    return await service.create_session(parts, await incoming.call(CreateSessionBody))


@operation(
    summary="Create a token for one session",
    description="It holds no permissions, works on its own session only, and ends with the key that made it.",
    permission=Permission.SESSION_MANAGE,
    payload=CreateSessionTokenBody,
    success_status=201,
    success_type=CreatedSessionTokenBody,
    success="The new token, which is shown only now.",
    idempotent=True,
    refusals=(
        Refusal(
            "exceeds_caller",
            errors.exceeds_caller("A key cannot give a longer life than its own."),
            "The token would outlive the calling key.",
            "Ask for an earlier `expires_at`, or leave it out.",
        ),
    ),
)
async def create_session_token(parts: Parts, incoming: Incoming) -> Answer:
    session_id = incoming.path_id("session_id")
    return await service.create_session_token(parts, await incoming.call(CreateSessionTokenBody), session_id)
