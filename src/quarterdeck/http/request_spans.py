"""A span for each request to the API. Only part of the app if tracing is on."""

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quarterdeck.core import tracing
from quarterdeck.core.secrets import redact
from quarterdeck.http.request import REQUEST_ID_STATE
from quarterdeck.http.sse import EVENT_STREAM

# Not health checks and files of the console.
_TRACED = ("/v1/", "/mcp")
# Other words are the caller's: the names of spans must be few.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SHOWN_CHARACTERS = 200
_SERVER_ERROR = 500


class RequestSpans:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(_TRACED):
            await self._app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
        attributes = {
            "http.request.method": method,
            "url.scheme": scope.get("scheme", "http"),
            # Without the query, which may hold secrets.
            "url.path": redact(scope["path"])[:_SHOWN_CHARACTERS],
        }
        with tracing.span(method, kind=SpanKind.SERVER, attributes=attributes, parent=_parent(scope)) as span:

            async def send_and_describe(message: Message) -> None:
                if message["type"] == "http.response.start":
                    _describe(span, method, scope, message)
                    if _is_stream(message):
                        # A stream may stay open for hours. Its span is the time until it began.
                        span.end()
                await send(message)

            await self._app(scope, receive, send_and_describe)


def _parent(scope: Scope) -> Context | None:
    """None: the current span, for a request that another one makes in this process: see `api/mcp_endpoint`."""
    if trace.get_current_span().get_span_context().is_valid:
        return None
    return propagate.extract(dict(Headers(scope=scope)), Context())


def _is_stream(start: Message) -> bool:
    return Headers(raw=start["headers"]).get("content-type", "").startswith(EVENT_STREAM)


def _describe(span: Span, method: str, scope: Scope, start: Message) -> None:
    status = start["status"]
    span.set_attribute("http.response.status_code", status)
    span.set_attribute("quarterdeck.request.id", scope[REQUEST_ID_STATE])
    route = scope.get("route")
    if route is not None:
        span.set_attribute("http.route", route.path)
        span.update_name(f"{method} {route.path}")
    if status >= _SERVER_ERROR:
        tracing.mark_failed(span, str(status))
