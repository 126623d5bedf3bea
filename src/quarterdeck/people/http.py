"""Operations that set the cookie of a browser."""

from datetime import UTC, datetime
from urllib.parse import parse_qsl
from uuid import UUID

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope

from quarterdeck.auth.access import Access, Hold, own_person
from quarterdeck.changes.model import ObjectType
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.core import errors
from quarterdeck.core.actors import ActorBody, Origin, Principal
from quarterdeck.core.call import Call
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.logging import log
from quarterdeck.core.operation import ErrorCase, operation
from quarterdeck.core.setting_types import Networks
from quarterdeck.db.database import Connection, Database
from quarterdeck.http import cookies
from quarterdeck.http.request import REQUEST_ID_STATE, Request, client_address
from quarterdeck.http.responses import json_response
from quarterdeck.people import invitations, profiles
from quarterdeck.people.model import AcceptInvitationBody, SignInBody
from quarterdeck.people.provider_model import (
    ATTEMPT_SECONDS,
    BeginSignInBody,
    BegunSignInBody,
    EndedSession,
    ProblemName,
    ProvidersBody,
    SignedOutBody,
    SignInProblem,
)
from quarterdeck.people.provider_sign_in import Finished, ProviderSignIns, forget_session
from quarterdeck.people.sign_in import SignedIn, SignIns

_COOKIE = "The browser gets a cookie with the credential of a new device, which scripts cannot read."
_OTHER_SITE = ErrorCase(
    "other_site",
    errors.other_site(),
    "The header Origin is missing or names another host than the header Host.",
    "Send the request from the console. A reverse proxy must keep the header Host.",
)
_UNKNOWN_PROVIDER = ErrorCase(
    "unknown_provider",
    errors.not_found("provider"),
    "The operator has described no such provider.",
    "List the providers.",
)
_REDIRECTION = {
    "Cache-Control": "no-store",
    # The address has the code of the provider.
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@operation(
    summary="Sign in",
    description=_COOKIE,
    permission=None,
    public=True,
    success="The person.",
    refusals=(
        _OTHER_SITE,
        invitations.UNKNOWN,
        ErrorCase(
            "wrong_sign_in",
            errors.wrong_sign_in(),
            "The email address or the password is wrong, or the person is no member of any workspace.",
            "Type both again, or ask an admin.",
        ),
    ),
)
async def sign_in(sign_ins: SignIns, call: Call[SignInBody], request: Request) -> ActorBody | Response:
    cookies.check_same_site(request.headers)
    body = call.read_body()
    join = None if body.invitation_token is None else invitations.joining(body.invitation_token, call.origin)
    return _signed_in(request, await sign_ins.with_password(body, call.origin, join))


@operation(
    summary="Accept an invitation",
    description=f"Creates the account of the person, with a password. {_COOKIE}",
    permission=None,
    public=True,
    success="The person.",
    refusals=(
        _OTHER_SITE,
        invitations.UNKNOWN,
        invitations.HAS_ACCOUNT,
        ErrorCase(
            "email_taken",
            errors.conflict(errors.EMAIL_TAKEN),
            "Another account has this email address.",
            "Choose another address, or leave it out.",
        ),
    ),
)
async def accept_invitation(
    database: Database, sign_ins: SignIns, call: Call[AcceptInvitationBody], request: Request
) -> ActorBody | Response:
    cookies.check_same_site(request.headers)
    return _signed_in(request, await invitations.accept(database, sign_ins, call.read_body(), call.origin))


@operation(
    summary="List the providers to sign in at",
    description="The OpenID providers that the operator has described.",
    permission=None,
    public=True,
    success="The providers.",
)
async def list_sign_in_providers(provider_sign_ins: ProviderSignIns, call: Call[None]) -> ProvidersBody:
    return provider_sign_ins.list()


@operation(
    summary="Begin to sign in at a provider",
    description="Send the browser to the address of the response. It comes back to `/signed-in/{provider}`, which "
    "signs it in and shows the console: the page `return_to`, or `/sign-in?problem=` and one of "
    f"{', '.join(ProblemName)}. The browser gets a cookie, without which nobody can finish the sign-in.",
    permission=None,
    public=True,
    success="Where to send the browser.",
    refusals=(_OTHER_SITE, _UNKNOWN_PROVIDER),
)
async def begin_sign_in(
    provider_sign_ins: ProviderSignIns, call: Call[BeginSignInBody], request: Request
) -> BegunSignInBody | Response:
    return await _begin(provider_sign_ins, call, request, None)


@operation(
    summary="Connect a provider",
    description="As `begin_sign_in`, for a person who has signed in: from then on they can sign in at the provider, "
    "too. The calling device is replaced when the browser comes back.",
    permission=None,
    personal=True,
    success="Where to send the browser.",
    refusals=(_OTHER_SITE, _UNKNOWN_PROVIDER),
)
async def connect_provider(
    access: Access, provider_sign_ins: ProviderSignIns, call: Call[BeginSignInBody], request: Request
) -> BegunSignInBody | Response:
    return await _begin(provider_sign_ins, call, request, await access.find(call, _own_device))


async def _own_device(_: Connection, principal: Principal) -> UUID:
    return errors.existing(principal.device_id, "provider")


async def _begin(
    provider_sign_ins: ProviderSignIns, call: Call[BeginSignInBody], request: Request, device_id: UUID | None
) -> Response:
    cookies.check_same_site(request.headers)
    origin = cookies.origin_of(request.headers)
    begun = await provider_sign_ins.begin(call.read_body(), origin, call.origin.address, device_id)
    cookie = cookies.set_attempt_cookie(request.headers, begun.browser, ATTEMPT_SECONDS)
    return json_response(msgspec.json.encode(BegunSignInBody(begun.authorization_url)), 200, cookie)


class ProviderCallback:
    """Where providers send the browser back to. Answers with a redirection to the console, whatever happens."""

    def __init__(self, provider_sign_ins: ProviderSignIns, proxies: Networks | None) -> None:
        self._provider_sign_ins = provider_sign_ins
        self._proxies = proxies

    async def respond(self, scope: Scope, _: Receive) -> Response:
        headers, found = Headers(scope=scope), []
        try:
            finished = await self._finish(scope, cookies.sent_attempt(headers))
            page, signed_in = finished.attempt.return_to, finished.signed_in
            found = cookies.after_attempt(finished.attempt.origin, signed_in.secret, _seconds_left(signed_in))
        except SignInProblem as fault:
            page = f"/sign-in?problem={fault.problem}"
        except ServiceError as fault:
            log.warning("a sign-in at an OpenID provider could not be stored", exc_info=fault)
            page = f"/sign-in?problem={ProblemName.UNAVAILABLE}"
        # The cookie is `Strict`: this redirection does not carry it, the requests of the console do.
        response = Response(status_code=303, headers=_REDIRECTION | {"Location": f"/#{page}"})
        for cookie in found:
            response.headers.append("Set-Cookie", cookie)
        return response

    async def _finish(self, scope: Scope, browser: str | None) -> Finished:
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=100)
        answer = dict(pairs)
        if browser is None or len(answer) < len(pairs):
            raise SignInProblem(ProblemName.EXPIRED)
        origin = Origin(client_address(scope, self._proxies), scope.get(REQUEST_ID_STATE))
        return await self._provider_sign_ins.finish(scope["path_params"]["provider"], browser, answer, origin)


@operation(
    summary="Sign out",
    description="Ends the calling device and deletes the cookie of the browser.",
    permission=None,
    personal=True,
    success="The device was signed out.",
)
async def sign_out(
    changes: Changes, provider_sign_ins: ProviderSignIns, call: Call[None], request: Request
) -> SignedOutBody | Response:
    sessions: list[EndedSession | None] = []

    async def effect(connection: Connection, principal: Principal, user_id: UUID, _: None) -> Made:
        assert principal.device_id is not None
        sessions.append(await forget_session(connection, principal.device_id))
        await profiles.end_devices(connection, user_id, [principal.device_id])
        return Made.plain(None, principal.device_id)

    await changes.perform(call, own_person("device"), ObjectType.DEVICE, effect, hold=Hold.EXCLUSIVE)
    session = sessions[-1] if sessions else None
    url = None if session is None else await provider_sign_ins.end_session_url(session)
    body = msgspec.json.encode(SignedOutBody(url))
    return json_response(body, 200, cookies.set_cookie(request.headers, "", 0))


def _signed_in(request: Request, signed_in: SignedIn) -> Response:
    body = msgspec.json.encode(signed_in.user)
    return json_response(body, 200, cookies.set_cookie(request.headers, signed_in.secret, _seconds_left(signed_in)))


def _seconds_left(signed_in: SignedIn) -> int:
    return int((signed_in.expires_at - datetime.now(UTC)).total_seconds())
