"""Session tokens over HTTP."""

from quarterdeck.auth.access import Access
from quarterdeck.changes.perform import Changes
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission
from quarterdeck.core.call import Answer
from quarterdeck.core.settings import KeySettings, TokenSettings
from quarterdeck.http.operation import Refusal, operation
from quarterdeck.http.request import Request
from quarterdeck.sessions import token_service
from quarterdeck.sessions.token_model import (
    CreatedSessionTokenBody,
    CreateSessionTokenBody,
    SessionTokenBody,
    SessionTokenPage,
)


@operation(
    summary="List the tokens of a session",
    description="One page per call, newest first unless order=asc. Includes expired and revoked tokens.",
    permission=Permission.WORKSPACE_READ,
    success_type=SessionTokenPage,
    success="One page. next_cursor is null on the last page.",
    paged=True,
)
async def list_session_tokens(request: Request, access: Access) -> SessionTokenPage:
    session_id, page = request.path_id("session_id"), request.page_request()
    return await token_service.list_session_tokens(access, request.call_without_body(), session_id, page)


@operation(
    summary="Create a token for one session",
    description="The token has no permissions, works only for its session, and ends when the key that created it is "
    "revoked.",
    permission=Permission.SESSION_MANAGE,
    payload=CreateSessionTokenBody,
    success_status=201,
    success_type=CreatedSessionTokenBody,
    success="The new token, which is shown only once.",
    idempotent=True,
    refusals=(
        Refusal(
            "exceeds_caller",
            errors.exceeds_caller("The lifetime must not exceed that of the calling key."),
            "The token would have a longer lifetime than the calling key.",
            "Request an earlier `expires_at` or omit it.",
        ),
    ),
)
async def create_session_token(
    request: Request, changes: Changes, key_settings: KeySettings, token_settings: TokenSettings
) -> Answer:
    session_id = request.path_id("session_id")
    return await token_service.create_session_token(
        changes, key_settings, token_settings, await request.call(CreateSessionTokenBody), session_id
    )


@operation(
    summary="Revoke a token of a session",
    description="Takes effect immediately, also for open event streams. Revoking again changes nothing.",
    permission=Permission.SESSION_MANAGE,
    success_type=SessionTokenBody,
    success="The revoked token.",
    idempotent=True,
)
async def revoke_session_token(request: Request, changes: Changes) -> Answer:
    session_id, token_id = request.path_id("session_id"), request.path_id("session_token_id")
    return await token_service.revoke_session_token(changes, request.call_without_body(), session_id, token_id)
