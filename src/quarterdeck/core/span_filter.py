"""Removes the texts of errors from spans. Libraries record them, and they may quote a conversation or a secret.

Imported only if tracing is on: the SDK of OpenTelemetry is an extra.
"""

from collections.abc import Sequence

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import Status

_EXCEPTION_TYPE = "exception.type"


class WithoutErrorTexts(SpanExporter):
    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self._exporter.export([_filtered(span) for span in spans])

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def _filtered(span: ReadableSpan) -> ReadableSpan:
    if not span.events and span.status.description is None:
        return span
    return ReadableSpan(
        name=span.name,
        context=span.get_span_context(),
        parent=span.parent,
        resource=span.resource,
        attributes=span.attributes,
        events=[_without_text(event) for event in span.events],
        links=span.links,
        kind=span.kind,
        status=Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _without_text(event: Event) -> Event:
    kept = {name: value for name, value in (event.attributes or {}).items() if name == _EXCEPTION_TYPE}
    return Event(event.name, kept, event.timestamp)
