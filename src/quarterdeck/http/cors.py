"""Pages of other origins, so that a browser can use a session token. Only origins that the operator lists, and only
credentials that a page sends itself: cookies and the like are not asked for and mean nothing here."""

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import Scope

from quarterdeck.core.settings import Origins
from quarterdeck.http.client_version import CLIENT
from quarterdeck.http.headers import headers_of

# Under this name the edge leaves an origin that is listed in the request's scope.
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
# The longest that Chromium remembers it.
_PREFLIGHT_SECONDS = 7200


def note_origin(scope: Scope, listed: Origins) -> None:
    given = [value.decode("latin-1") for value in headers_of(scope).all(b"origin")]
    if len(given) == 1 and given[0] in listed:
        scope[_ORIGIN_STATE] = given[0]


def is_preflight(scope: Scope) -> bool:
    """From a listed origin. What others send is a method that the path does not answer."""
    asked = b"access-control-request-method" in headers_of(scope)
    return scope["method"] == "OPTIONS" and _ORIGIN_STATE in scope and asked


def preflight_response(methods: str) -> Response:
    headers = {
        "Access-Control-Allow-Methods": methods,
        "Access-Control-Allow-Headers": ", ".join(_REQUEST_HEADERS),
        "Access-Control-Max-Age": str(_PREFLIGHT_SECONDS),
    }
    return Response(status_code=204, headers=headers)


def mark(scope: Scope, headers: MutableHeaders) -> None:
    """Every answer while origins are listed, also those to others: a cache must not give one the other's."""
    headers.add_vary_header("Origin")
    if _ORIGIN_STATE in scope:
        headers["Access-Control-Allow-Origin"] = scope[_ORIGIN_STATE]
        headers["Access-Control-Expose-Headers"] = ", ".join(_RESPONSE_HEADERS)
