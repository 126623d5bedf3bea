"""Around every request: its id, the checks of the HTTP level, the envelope for whatever goes wrong, one log line."""

import re
import time
from collections.abc import Awaitable

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quarterdeck.core import errors
from quarterdeck.core.errors import ErrorCode, ServiceError
from quarterdeck.core.ids import new_id_text
from quarterdeck.core.logging import fields, log
from quarterdeck.core.secrets import redact
from quarterdeck.core.settings import HttpSettings
from quarterdeck.http import cors
from quarterdeck.http.headers import Headers, note_headers
from quarterdeck.http.request import REQUEST_ID_STATE
from quarterdeck.http.request_log import RequestLog
from quarterdeck.http.responses import error_response

REQUEST_ID = b"x-request-id"
# Where an endpoint may put a function that returns headers for whatever answer is sent, errors included.
EXTRA_HEADERS = "quarterdeck.extra_headers"
_ACCEPTED_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
# A name, an address or an address in brackets, and perhaps a port: what RFC 9110 lets stand in Host.
_HOST = re.compile(rb"([A-Za-z0-9._~!$&'()*+,;=%-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]*)?")


class Middleware:
    def __init__(self, app: ASGIApp, settings: HttpSettings) -> None:
        self._app = app
        self._settings = settings
        self._log = RequestLog()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            self._log.write()
            return
        began = time.perf_counter()
        headers = note_headers(scope)
        request_id = scope[REQUEST_ID_STATE] = _request_id(headers)
        status = 0
        if self._settings.cors_origins is not None:
            cors.note_origin(scope, self._settings.cors_origins)

        def send_marked(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._mark(scope, message)
            return send(message)

        try:
            _check_host(headers)
            await self._app(scope, receive, send_marked)
        except Exception as fault:
            error = fault if isinstance(fault, ServiceError) else errors.internal()
            cause = fault.__cause__ if isinstance(fault, ServiceError) else fault
            # What the caller can mend is no fault of ours: its status in the line below says it all.
            if cause is not None and error.kind.code is ErrorCode.INTERNAL:
                log.error("request failed", exc_info=cause, extra=fields(request_id=request_id))
            # The traceback leads back to this frame and its variables: a circle that would keep the request until the
            # garbage collector comes by.
            fault.__traceback__ = None
            # An answer that was begun is broken off: the server ends a connection whose answer has no end.
            if not status:
                await error_response(error)(scope, receive, send_marked)
        finally:
            self._log.add(
                request_id=request_id,
                method=scope["method"],
                path=scope["path"],
                status=status,
                seconds=time.perf_counter() - began,
            )

    def _mark(self, scope: Scope, start: Message) -> None:
        """Here, where answers and errors alike come by."""
        start["headers"] = [*start["headers"], (REQUEST_ID, scope[REQUEST_ID_STATE].encode())]
        extra: dict[str, str] = scope[EXTRA_HEADERS]() if EXTRA_HEADERS in scope else {}
        if extra or self._settings.cors_origins is not None:
            headers = MutableHeaders(scope=start)
            headers.update(extra)
            if self._settings.cors_origins is not None:
                cors.mark(scope, headers)


def _request_id(headers: Headers) -> str:
    given = headers.all(REQUEST_ID)
    if len(given) == 1 and _ACCEPTED_ID.fullmatch(given[0]):
        text = str(given[0], "ascii")
        if redact(text) == text:
            return text
    return new_id_text()


def _check_host(headers: Headers) -> None:
    hosts = headers.all(b"host")
    if len(hosts) != 1 or not _HOST.fullmatch(hosts[0].strip()):
        raise errors.invalid("The request needs exactly one Host header, with a host in it.")
