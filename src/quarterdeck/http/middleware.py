"""Applied to every request: its id, checks of the HTTP level, the error envelope, one log line."""

import re
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quarterdeck.core import errors, metrics
from quarterdeck.core.errors import ErrorCode, ServiceError
from quarterdeck.core.ids import new_id
from quarterdeck.core.logging import fields, log
from quarterdeck.core.secrets import redact
from quarterdeck.core.settings import HttpSettings
from quarterdeck.http import cors
from quarterdeck.http.request import REQUEST_ID_STATE
from quarterdeck.http.request_body import UnreadBody
from quarterdeck.http.responses import error_response

REQUEST_ID = "x-request-id"
_REQUEST_ID_NAME = REQUEST_ID.encode()
# Key in the scope for a function that returns headers to add to the response, also to an error, as ASGI sends them.
EXTRA_HEADERS = "quarterdeck.extra_headers"
_ACCEPTED_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
# A name, an IPv4 address or an IPv6 address in brackets, with an optional port: RFC 9110, section 7.2.
_HOST = re.compile(r"([A-Za-z0-9._~!$&'()*+,;=%-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]*)?", re.ASCII)
_LOGGED_CHARACTERS = 200
# A client that was given up for being slow is not waited for.
_TOO_SLOW = 408


class Middleware:
    def __init__(self, app: ASGIApp, settings: HttpSettings, *, logs_successes: bool = True) -> None:
        self._app = app
        self._settings = settings
        self._logs_successes = logs_successes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        headers = Headers(scope=scope)
        request_id = scope[REQUEST_ID_STATE] = _request_id(headers)
        status = 0
        if self._settings.cors_origins is not None:
            cors.note_origin(scope, self._settings.cors_origins)

        body = UnreadBody(headers, receive, self._settings)

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # Not at the end, which an event stream may reach after days.
                metrics.response_started(scope["method"], _route(scope), status, time.perf_counter() - began)
                if status != _TOO_SLOW:
                    await body.discard()
                self._add_headers(scope, message)
            await send(message)

        try:
            _check_host(headers)
            _check_transfer_encoding(headers)
            _check_path(scope)
            await self._app(scope, body.receive, send_with_headers)
        except Exception as fault:
            error = fault if isinstance(fault, ServiceError) else errors.internal()
            cause = fault.__cause__ if isinstance(fault, ServiceError) else fault
            if cause is not None and error.kind.code is ErrorCode.INTERNAL:
                log.error("request failed", exc_info=cause, extra=fields(request_id=request_id))
            # The traceback refers to this frame and the frame to the exception. Without this the request, and with it
            # the connection, would be kept until the next garbage collection.
            fault.__traceback__ = None
            # If the response has started it is left incomplete, and the server closes the connection.
            if not status:
                await error_response(error)(scope, body.receive, send_with_headers)
        finally:
            if not status:
                metrics.request_aborted(scope["method"], _route(scope))
            self._log(scope, status, time.perf_counter() - began)

    def _log(self, scope: Scope, status: int, seconds: float) -> None:
        # 0: the client has left.
        if self._logs_successes or not 0 < status < 400:
            _log_request(scope, status, seconds)

    def _add_headers(self, scope: Scope, start: Message) -> None:
        headers = [*start["headers"], (_REQUEST_ID_NAME, scope[REQUEST_ID_STATE].encode())]
        if EXTRA_HEADERS in scope:
            headers += scope[EXTRA_HEADERS]()
        start["headers"] = headers
        if self._settings.cors_origins is not None:
            cors.add_headers(scope, MutableHeaders(scope=start))


def _route(scope: Scope) -> str | None:
    """The path as in the table of routes. None: no route matched."""
    return scope["route"].path if "route" in scope else None


def _log_request(scope: Scope, status: int, seconds: float) -> None:
    """Without query and headers, which may hold secrets."""
    log.info(
        "request",
        extra=fields(
            request_id=scope[REQUEST_ID_STATE],
            method=_shortened(scope["method"]),
            path=_shortened(scope["path"]),
            status=status,
            ms=round(seconds * 1000, 2),
        ),
    )


def _shortened(text: str) -> str:
    """Redacted before it is cut: a part of a secret would not be recognised. The log formatter redacts the rest."""
    return text if len(text) <= _LOGGED_CHARACTERS else redact(text)[:_LOGGED_CHARACTERS]


def _request_id(headers: Headers) -> str:
    given = headers.getlist(REQUEST_ID)
    if len(given) == 1 and _ACCEPTED_ID.fullmatch(given[0]) and redact(given[0]) == given[0]:
        return given[0]
    return str(new_id())


def _check_host(headers: Headers) -> None:
    hosts = headers.getlist("host")
    if len(hosts) != 1 or not _HOST.fullmatch(hosts[0].strip()):
        raise errors.invalid("The request must have exactly one non-empty Host header.")


def _check_transfer_encoding(headers: Headers) -> None:
    """Servers and proxies disagree on other codings and on a Content-Length beside them: request smuggling."""
    codings = headers.getlist("transfer-encoding")
    if codings and [coding.strip().lower() for coding in codings] != ["chunked"]:
        raise errors.unknown_coding()
    if codings and "content-length" in headers:
        raise errors.malformed("A request must not have both Transfer-Encoding and Content-Length.")


def _check_path(scope: Scope) -> None:
    """The router sees the decoded path, where an encoded slash looks like a separator. Its patterns end in `$`, which
    also matches before a final line feed."""
    if b"%2f" in scope.get("raw_path", b"").lower() or scope["path"].endswith("\n"):
        raise errors.not_found("path")
