"""Spans by OpenTelemetry. All functions do nothing until `trace_export.start_tracing` has turned tracing on.

Spans never hold the text of an error, which may contain a part of a conversation or a secret: only its type.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

_TRACEPARENT = "traceparent"
# The format in which a run stores its parent, whatever format callers use (OTEL_PROPAGATORS).
_FORMAT = TraceContextTextMapPropagator()
# In place of a span while tracing is off.
NO_SPAN = nullcontext(INVALID_SPAN)


class _Tracing:
    # None: off.
    tracer: Tracer | None = None
    # Largest number of characters of an attribute with content. None: content is not recorded.
    content_characters: int | None = None


def turn_on(tracer: Tracer, content_characters: int | None) -> None:
    _Tracing.tracer, _Tracing.content_characters = tracer, content_characters


def turn_off() -> None:
    _Tracing.tracer = _Tracing.content_characters = None


def is_on() -> bool:
    return _Tracing.tracer is not None


def content_characters() -> int | None:
    """Largest number of characters of an attribute with a part of a conversation. None: none may be recorded."""
    return _Tracing.content_characters


def span(
    name: str,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    attributes: Mapping[str, AttributeValue] | None = None,
    parent: Context | None = None,
    expected: tuple[type[BaseException], ...] = (),
) -> AbstractContextManager[Span]:
    """A span around the body, which may end it early. An exception marks it as failed, unless it is `expected`.
    `parent`: by default the current span."""
    if _Tracing.tracer is None:
        return NO_SPAN
    return _around(_Tracing.tracer.start_span(name, context=parent, kind=kind, attributes=attributes), expected)


@contextmanager
def _around(current: Span, expected: tuple[type[BaseException], ...]) -> Iterator[Span]:
    try:
        with trace.use_span(current, record_exception=False, set_status_on_exception=False):
            yield current
    except expected:
        raise
    except BaseException as fault:
        mark_failed(current, type(fault).__name__)
        raise
    finally:
        if current.is_recording():
            current.end()


def mark_failed(failed: Span, error_type: str) -> None:
    if failed.is_recording():
        failed.set_attribute("error.type", error_type)
        failed.set_status(StatusCode.ERROR)


def traceparent() -> str | None:
    """The current span as a W3C traceparent, also if it is not sampled: then its children are not sampled either."""
    carrier: dict[str, str] = {}
    _FORMAT.inject(carrier)
    return carrier.get(_TRACEPARENT)


def parent_of(stored: str | None) -> Context:
    """The parent that `traceparent` returned. None: a new trace begins."""
    return _FORMAT.extract({} if stored is None else {_TRACEPARENT: stored}, Context())


def trace_id() -> str | None:
    """The id of the current trace, if it is sampled."""
    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.trace_flags.sampled else None
