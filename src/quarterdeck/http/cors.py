"""CORS, so that a page of another origin can use a session token. Only origins that the operator lists are allowed, and
only an Authorization header that the page sets itself: cookies are not used."""

import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import Scope

from quarterdeck.core import errors
from quarterdeck.core.setting_types import Origins
from quarterdeck.core.settings import HttpSettings

# Our own clients send their version. A version that is too old is answered 426 before any other check.

CLIENT = "Quarterdeck-Client"
# A suffix behind the numbers, as in 0.2.0rc1, is ignored. Other clients and malformed values are let through.
_OURS = re.compile(r"quarterdeck-[a-z0-9-]+/([0-9]{1,9}(?:\.[0-9]{1,9}){0,3})(?:[^0-9].*)?", re.ASCII)
_PLACES = 4


def check_client(scope: Scope, settings: HttpSettings) -> None:
    given = Headers(scope=scope).getlist(CLIENT)
    match = _OURS.fullmatch(given[0]) if len(given) == 1 else None
    if match is not None and _numbers(match[1]) < _numbers(settings.min_client_version):
        raise errors.outdated(settings.min_client_version)


def _numbers(version: str) -> list[int]:
    numbers = [int(number) for number in version.split(".")]
    return numbers + [0] * (_PLACES - len(numbers))


# Key in the request's scope for an allowed origin.
_ORIGIN_STATE = "quarterdeck.origin"
_REQUEST_HEADERS = (
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "If-Match",
    "If-None-Match",
    "Last-Event-ID",
    CLIENT,
    "Range",
    "Service-Workspace",
    "X-Request-Id",
)
_RESPONSE_HEADERS = (
    "Accept-Ranges",
    "Allow",
    "Content-Disposition",
    "Content-Range",
    "ETag",
    "Idempotency-Replayed",
    "RateLimit",
    "RateLimit-Policy",
    "Retry-After",
    "WWW-Authenticate",
    "X-Request-Id",
)
# The longest time that Chromium caches a preflight response.
_PREFLIGHT_SECONDS = 7200


def note_origin(scope: Scope, listed: Origins) -> None:
    given = Headers(scope=scope).getlist("origin")
    if len(given) == 1 and given[0] in listed:
        scope[_ORIGIN_STATE] = given[0]


def is_preflight(scope: Scope) -> bool:
    """A preflight of an allowed origin. For others OPTIONS is a method that the path does not have."""
    asked = "access-control-request-method" in Headers(scope=scope)
    return scope["method"] == "OPTIONS" and _ORIGIN_STATE in scope and asked


def preflight_response(methods: str) -> Response:
    headers = {
        "Access-Control-Allow-Methods": methods,
        "Access-Control-Allow-Headers": ", ".join(_REQUEST_HEADERS),
        "Access-Control-Max-Age": str(_PREFLIGHT_SECONDS),
    }
    return Response(status_code=204, headers=headers)


def add_headers(scope: Scope, headers: MutableHeaders) -> None:
    """Applied to every response while origins are listed: a cache must not give one origin the response of another."""
    headers.add_vary_header("Origin")
    if _ORIGIN_STATE in scope:
        headers["Access-Control-Allow-Origin"] = scope[_ORIGIN_STATE]
        headers["Access-Control-Expose-Headers"] = ", ".join(_RESPONSE_HEADERS)
