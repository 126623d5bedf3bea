"""Operations that set the cookie of a browser."""

from datetime import UTC, datetime
from uuid import UUID

import msgspec
from starlette.responses import Response

from quarterdeck.auth.access import Hold, own_person
from quarterdeck.changes.model import ObjectType
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.core import errors
from quarterdeck.core.actors import ActorBody, Principal
from quarterdeck.core.call import Call
from quarterdeck.core.operation import ErrorCase, operation
from quarterdeck.db.database import Connection, Database
from quarterdeck.http import cookies
from quarterdeck.http.request import Request
from quarterdeck.http.responses import json_response
from quarterdeck.people import invitations, profiles
from quarterdeck.people.model import AcceptInvitationBody, SignInBody
from quarterdeck.people.sign_in import SignedIn, SignIns

_COOKIE = "The browser gets a cookie with the credential of a new device, which scripts cannot read."
_OTHER_SITE = ErrorCase(
    "other_site",
    errors.other_site(),
    "The header Origin is missing or names another host than the header Host.",
    "Send the request from the console. A reverse proxy must keep the header Host.",
)


@operation(
    summary="Sign in",
    description=_COOKIE,
    permission=None,
    public=True,
    success="The person.",
    refusals=(
        _OTHER_SITE,
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
    return _signed_in(request, await sign_ins.with_password(call.read_body(), call.origin))


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
    summary="Sign out",
    description="Ends the calling device and deletes the cookie of the browser.",
    permission=None,
    personal=True,
    success="The device was signed out.",
)
async def sign_out(changes: Changes, call: Call[None], request: Request) -> Response:
    async def effect(connection: Connection, principal: Principal, user_id: UUID, _: None) -> Made:
        assert principal.device_id is not None
        await profiles.end_devices(connection, user_id, [principal.device_id])
        return Made.plain(None, principal.device_id)

    await changes.perform(call, own_person("device"), ObjectType.DEVICE, effect, hold=Hold.EXCLUSIVE)
    return json_response(b"", 204, cookies.set_cookie(request.headers, "", 0))


def _signed_in(request: Request, signed_in: SignedIn) -> Response:
    seconds = int((signed_in.expires_at - datetime.now(UTC)).total_seconds())
    body = msgspec.json.encode(signed_in.user)
    return json_response(body, 200, cookies.set_cookie(request.headers, signed_in.secret, seconds))
