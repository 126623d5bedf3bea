"""Turns tracing on, if the usual variables of OpenTelemetry ask for it: docs/run/tracing.md lists them.

The SDK is an extra of the package and is imported only then. It sends spans in a thread of its own, from a bounded
queue: if the collector does not answer, spans are lost and nothing waits.
"""

import logging
import threading
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from quarterdeck import __version__
from quarterdeck.core import tracing
from quarterdeck.core.logging import log
from quarterdeck.core.settings import SettingsError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanLimits, TracerProvider

_EXPORTERS = "opentelemetry_traces_exporter"
_EXPORTER = "OTEL_TRACES_EXPORTER"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_LENGTH_LIMITS = ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT")
_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
# OpenTelemetry has no limit by default: a queue of spans with whole conversations would fill the memory.
_MAX_CHARACTERS = 16 * 1024
_PACKAGES = {"otlp_proto_http": "quarterdeck[otel]", "otlp_proto_grpc": "opentelemetry-exporter-otlp-proto-grpc"}

_provider: "TracerProvider | None" = None


def check_tracing(environ: Mapping[str, str]) -> None:
    """Raises SettingsError if tracing is asked for and cannot be turned on."""
    name = exporter_name(environ)
    if name is not None:
        _find_exporter(name)
        _span_limits(environ)


def start_tracing(service: str, environ: Mapping[str, str]) -> None:
    """`service`: the name of this process in traces, unless the environment has one. Once in a process, after forks."""
    global _provider
    name = exporter_name(environ)
    if name is None or _provider is not None:
        return
    entry = _find_exporter(name)
    from opentelemetry import trace
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from quarterdeck.core.span_filter import WithoutErrorTexts

    # As the lines of our own log, and not as bare text.
    library_log = logging.getLogger("opentelemetry")
    library_log.handlers, library_log.propagate = list(log.handlers), False
    limits = _span_limits(environ)
    own = {"service.name": service, "service.version": __version__}
    resource = Resource.create(own | dict(OTELResourceDetector().detect().attributes))
    _provider = TracerProvider(resource=resource, span_limits=limits, shutdown_on_exit=False)
    try:
        _provider.add_span_processor(BatchSpanProcessor(WithoutErrorTexts(entry.load()())))
    except ValueError as fault:
        raise SettingsError(f"traces cannot be exported: {fault}") from fault
    trace.set_tracer_provider(_provider)
    records_content = environ.get(_CONTENT, "").strip().lower() in ("true", "span_only", "span_and_event")
    tracing.turn_on(
        _provider.get_tracer("quarterdeck", own["service.version"]),
        limits.max_span_attribute_length if records_content else None,
    )
    log.addFilter(add_trace_id)


def stop_tracing(wait_seconds: float) -> None:
    """Sends the spans that wait. Those that are not sent in time are lost: the process must end."""
    global _provider
    if _provider is None:
        return
    tracing.turn_off()
    log.removeFilter(add_trace_id)
    # The library would wait for half a minute.
    thread = threading.Thread(target=_provider.shutdown, name="stop-tracing", daemon=True)
    thread.start()
    thread.join(wait_seconds)
    _provider = None


def exporter_name(environ: Mapping[str, str]) -> str | None:
    """The name under which its package registers the exporter. None: tracing is off."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    name = environ.get(_EXPORTER, "").strip().lower()
    if not name and not any(environ.get(variable) for variable in _ENDPOINTS):
        return None
    if name == "none":
        return None
    if name not in ("", "otlp"):
        return name
    protocol = next((environ[variable] for variable in _PROTOCOLS if environ.get(variable)), "http/protobuf")
    return "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"


def _find_exporter(name: str) -> EntryPoint:
    found = list(entry_points(group=_EXPORTERS, name=name))
    if not found:
        package = _PACKAGES.get(name)
        needed = f"install {package}" if package else "no installed package has this exporter"
        raise SettingsError(f"traces cannot be exported by {name!r} ({_EXPORTER}): {needed}")
    return found[0]


def _span_limits(environ: Mapping[str, str]) -> "SpanLimits":
    from opentelemetry.sdk.trace import SpanLimits

    try:
        is_limited = any(environ.get(variable) for variable in _LENGTH_LIMITS)
        return SpanLimits() if is_limited else SpanLimits(max_attribute_length=_MAX_CHARACTERS)
    except ValueError as fault:
        raise SettingsError(str(fault)) from None


def add_trace_id(record: logging.LogRecord) -> bool:
    trace_id = tracing.trace_id()
    if trace_id is not None:
        record.fields = {**getattr(record, "fields", {}), "trace_id": trace_id}
    return True
