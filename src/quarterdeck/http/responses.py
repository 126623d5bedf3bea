"""JSON responses and the error envelope: the only place that maps an error to its status and headers."""

import msgspec
from msgspec import Struct
from starlette.responses import Response

from quarterdeck.core.errors import ErrorCode, ErrorKind, ServiceError

JSON = "application/json"

STATUS = {
    ErrorKind.UNAUTHORIZED: 401,
    ErrorKind.FORBIDDEN: 403,
    ErrorKind.NOT_FOUND: 404,
    ErrorKind.INVALID: 400,
    ErrorKind.TOO_LARGE: 413,
    ErrorKind.TOO_SLOW: 408,
    ErrorKind.BROKEN_BODY: 400,
    ErrorKind.MALFORMED: 400,
    ErrorKind.WRONG_METHOD: 405,
    ErrorKind.UNSATISFIABLE_RANGE: 416,
    ErrorKind.CONFLICT: 409,
    ErrorKind.CONTENDED: 409,
    ErrorKind.PRECONDITION: 412,
    ErrorKind.OUTDATED: 426,
    ErrorKind.TOO_MANY: 429,
    ErrorKind.TOO_MANY_STREAMS: 429,
    ErrorKind.UNAVAILABLE: 503,
    ErrorKind.INTERNAL: 500,
}

# Answers depend on the caller and change at any time: no cache may keep them, and no browser may guess another type.
# Encoded once, because every answer has them.
NOT_STORED = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))

# The rest of the request's body may still arrive, so the connection cannot be used for another request. A client that
# opens too many streams must not keep the connections of those that were refused.
_CLOSE = {"Connection": "close"}
HEADERS = {
    ErrorKind.UNAUTHORIZED: {"WWW-Authenticate": "Bearer"},
    ErrorKind.CONTENDED: {"Retry-After": "0"},
    ErrorKind.UNAVAILABLE: {"Retry-After": "1"},
    ErrorKind.TOO_LARGE: _CLOSE,
    ErrorKind.TOO_SLOW: _CLOSE,
    ErrorKind.BROKEN_BODY: _CLOSE,
    ErrorKind.MALFORMED: _CLOSE,
    ErrorKind.TOO_MANY_STREAMS: _CLOSE,
}


class ErrorDetail(Struct, frozen=True):
    code: ErrorCode
    message: str


class ErrorBody(Struct, frozen=True):
    error: ErrorDetail


def error_response(fault: ServiceError, headers: dict[str, str] | None = None) -> Response:
    body = msgspec.json.encode(ErrorBody(ErrorDetail(fault.kind.code, fault.message)))
    return json_response(body, STATUS[fault.kind], headers_of(fault) | (headers or {}))


def headers_of(fault: ServiceError) -> dict[str, str]:
    waiting = {} if fault.wait_seconds is None else {"Retry-After": str(fault.wait_seconds)}
    return HEADERS.get(fault.kind, {}) | waiting


def json_response(body: bytes, status: int, headers: dict[str, str] | None = None) -> Response:
    response = Response(body, status, headers, JSON if body else None)
    response.raw_headers.extend(NOT_STORED)
    return response
