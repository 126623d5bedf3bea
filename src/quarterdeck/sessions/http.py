"""Sessions over HTTP."""

from quarterdeck.http.incoming import Incoming
from quarterdeck.idempotency.service import Answer
from quarterdeck.parts import Parts
from quarterdeck.sessions import service
from quarterdeck.sessions.model import CreateSessionBody, CreateSessionTokenBody


async def create_session(parts: Parts, incoming: Incoming) -> Answer:
    return await service.create_session(parts, await incoming.call(CreateSessionBody))


async def create_session_token(parts: Parts, incoming: Incoming) -> Answer:
    session_id = incoming.path_id("session_id")
    return await service.create_session_token(parts, await incoming.call(CreateSessionTokenBody), session_id)
