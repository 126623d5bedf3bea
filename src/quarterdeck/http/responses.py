"""Errors as HTTP: the only place that gives an error its status and headers."""

import msgspec
from msgspec import Struct
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quarterdeck.core.errors import ErrorCode, Kind, ServiceError

JSON = "application/json"
_NO_CONTENT = 204

STATUS = {
    Kind.UNAUTHORIZED: 401,
    Kind.FORBIDDEN: 403,
    Kind.NOT_FOUND: 404,
    Kind.INVALID: 400,
    Kind.TOO_LARGE: 413,
    Kind.TOO_SLOW: 408,
    Kind.BROKEN_BODY: 400,
    Kind.MALFORMED: 400,
    Kind.LONG_LINE: 414,
    Kind.LARGE_HEAD: 431,
    Kind.WRONG_METHOD: 405,
    Kind.UNSATISFIABLE_RANGE: 416,
    Kind.CONFLICT: 409,
    Kind.CONTENDED: 409,
    Kind.PRECONDITION: 412,
    Kind.OUTDATED: 426,
    Kind.TOO_MANY: 429,
    Kind.UNAVAILABLE: 503,
    Kind.INTERNAL: 500,
}

# After these the rest of the request's body may still be on its way: the connection cannot carry another request.
_CLOSE = {"Connection": "close"}
HEADERS = {
    Kind.UNAUTHORIZED: {"WWW-Authenticate": "Bearer"},
    Kind.CONTENDED: {"Retry-After": "0"},
    Kind.UNAVAILABLE: {"Retry-After": "1"},
    Kind.TOO_LARGE: _CLOSE,
    Kind.TOO_SLOW: _CLOSE,
    Kind.BROKEN_BODY: _CLOSE,
    Kind.MALFORMED: _CLOSE,
    Kind.LONG_LINE: _CLOSE,
    Kind.LARGE_HEAD: _CLOSE,
}


class ErrorDetail(Struct, frozen=True):
    code: ErrorCode
    message: str


class ErrorBody(Struct, frozen=True):
    error: ErrorDetail


def error_response(fault: ServiceError, headers: dict[str, str] | None = None) -> Response:
    body = msgspec.json.encode(ErrorBody(ErrorDetail(fault.kind.code, fault.message)))
    return Response(body, STATUS[fault.kind], headers_of(fault) | (headers or {}), JSON)


def headers_of(fault: ServiceError) -> dict[str, str]:
    waiting = {} if fault.wait_seconds is None else {"Retry-After": str(fault.wait_seconds)}
    return HEADERS.get(fault.kind, {}) | waiting


def json_response(body: bytes, status: int, headers: dict[str, str] | None = None) -> Response:
    return _JsonResponse(body, status, headers or {})


class _JsonResponse(Response):
    """Nearly every answer is one: without what Starlette does for others it takes half as long."""

    def __init__(self, body: bytes, status: int, headers: dict[str, str]) -> None:
        self.body = body
        self.status_code = status
        self.background = None
        self.raw_headers = []
        if status != _NO_CONTENT:
            self.raw_headers.append((b"content-length", b"%d" % len(body)))
        if body:
            self.raw_headers.append((b"content-type", b"application/json"))
        for name, value in headers.items():
            self.raw_headers.append((name.lower().encode(), value.encode("latin-1")))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body})
