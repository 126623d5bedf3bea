"""When traces are exported, and what spans hold about errors."""

import io
import json
import logging
import threading
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from quarterdeck.core import trace_export, tracing
from quarterdeck.core.logging import JsonLines
from quarterdeck.core.settings import SettingsError
from quarterdeck.core.span_filter import WithoutErrorTexts

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


@pytest.fixture
def exported() -> Iterator[InMemorySpanExporter]:
    """Tracing is on. The spans that were exported."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(WithoutErrorTexts(exporter)))
    tracing.turn_on(provider.get_tracer("test"), content_characters=None)
    yield exporter
    tracing.turn_off()


@pytest.mark.parametrize(
    ("environ", "exporter"),
    [
        ({}, None),
        ({"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on"}, None),
        (ENDPOINT, "otlp_proto_http"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, "otlp_proto_http"),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "otlp_proto_http"),
        ({"OTEL_TRACES_EXPORTER": "console"}, "console"),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"}, None),
        (ENDPOINT | {"OTEL_SDK_DISABLED": "true"}, None),
        (ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "otlp_proto_grpc"),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"} | ENDPOINT,
            "otlp_proto_http",
        ),
    ],
)
def test_the_usual_variables_turn_tracing_on(environ: dict[str, str], exporter: str | None) -> None:
    assert trace_export.exporter_name(environ) == exporter


@pytest.mark.parametrize(
    ("environ", "reason"),
    [
        ({"OTEL_TRACES_EXPORTER": "carrier_pigeon"}, "no installed package has this exporter"),
        (ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "install opentelemetry-exporter-otlp-proto-grpc"),
    ],
)
def test_an_exporter_that_is_not_installed_is_refused(environ: dict[str, str], reason: str) -> None:
    trace_export.check_tracing(ENDPOINT)
    with pytest.raises(SettingsError, match=reason):
        trace_export.check_tracing(environ)


def test_a_process_ends_although_spans_cannot_be_sent() -> None:
    sent = threading.Event()
    provider = TracerProvider(shutdown_on_exit=False)
    with patch.object(provider, "shutdown", sent.wait), patch.object(trace_export, "_provider", provider):
        trace_export.stop_tracing(wait_seconds=0.01)
        # Otherwise this line is not reached.
        sent.set()


def test_spans_hold_the_type_of_an_error_but_not_its_text(exported: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="planted"), tracing.span("ours"):
        raise ValueError("planted")
    with pytest.raises(KeyError), tracing.span("expected", expected=(KeyError,)):
        raise KeyError
    with tracing.span("a library's") as span:
        span.record_exception(ValueError("planted"))
        span.set_status(StatusCode.ERROR, "planted")
    ours, expected, other = exported.get_finished_spans()
    assert "planted" not in "".join(span.to_json() for span in (ours, expected, other))
    assert (ours.status.status_code, dict(ours.attributes or {})) == (StatusCode.ERROR, {"error.type": "ValueError"})
    assert expected.status.status_code is StatusCode.UNSET
    assert other.status.status_code is StatusCode.ERROR
    assert [dict(event.attributes or {}) for event in other.events] == [{"exception.type": "ValueError"}]


def test_a_stored_parent_continues_its_trace(exported: InMemorySpanExporter) -> None:
    with tracing.span("request"):
        stored, trace_id = tracing.traceparent(), tracing.trace_id()
    with tracing.span("job", parent=tracing.parent_of(stored)):
        assert tracing.trace_id() == trace_id
    with tracing.span("another request"), tracing.span("job", parent=tracing.parent_of(None)) as span:
        assert tracing.trace_id() != trace_id
        span.end()
    first, job, other_job, other = exported.get_finished_spans()
    assert job.parent is not None
    assert first.context is not None
    assert job.parent.span_id == first.context.span_id
    assert (other_job.parent, other.parent) == (None, None)
    assert tracing.trace_id() is None


def test_log_lines_have_the_id_of_their_trace(exported: InMemorySpanExporter) -> None:
    output = io.StringIO()
    handler = logging.StreamHandler(output)
    handler.setFormatter(JsonLines())
    logger = logging.Logger("test")
    logger.addHandler(handler)
    logger.addFilter(trace_export.add_trace_id)
    logger.info("before")
    with tracing.span("request"):
        logger.info("during", extra={"fields": {"status": 200}})
        trace_id = tracing.trace_id()
    before, during = map(json.loads, output.getvalue().splitlines())
    assert "trace_id" not in before
    assert (during["trace_id"], during["status"]) == (trace_id, 200)
