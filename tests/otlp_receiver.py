"""A collector for tests: takes spans by OTLP over HTTP, decodes them with OpenTelemetry's own protocol package, and
keeps them."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from msgspec import Struct
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.workers import eventually

KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
_ERROR = 2


class ReceivedSpan(Struct, frozen=True):
    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: str
    service: str
    attributes: dict[str, Any]
    is_error: bool


class Collector:
    def __init__(self, url: str) -> None:
        self.url = url
        # As they came over the wire.
        self.bodies: list[bytes] = []

    def spans(self, trace_id: str) -> list[ReceivedSpan]:
        """In the order of their begin."""
        found = []
        for body in list(self.bodies):
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                service = _values(resource.resource.attributes)["service.name"]
                found += [(span, service) for scope in resource.scope_spans for span in scope.spans]
        found.sort(key=lambda one: one[0].start_time_unix_nano)
        return [_span(span, service) for span, service in found if span.trace_id.hex() == trace_id]

    async def wait_for(self, trace_id: str, *names: str) -> list[ReceivedSpan]:
        """All spans of the trace, once those with these names have come, each as often as it is named."""

        async def look() -> list[ReceivedSpan]:
            # Decoding everything that has come takes a while on a busy machine.
            spans = await asyncio.to_thread(self.spans, trace_id)
            return spans if Counter(names) <= Counter(span.name for span in spans) else []

        try:
            received: list[ReceivedSpan] = await eventually(look)
        except AssertionError:
            raise AssertionError(f"received {[span.name for span in self.spans(trace_id)]}") from None
        return received


def _span(span: Any, service: str) -> ReceivedSpan:
    return ReceivedSpan(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        name=span.name,
        kind=KINDS[span.kind],
        service=service,
        attributes=_values(span.attributes),
        is_error=span.status.code == _ERROR,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)


@contextmanager
def collecting() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
