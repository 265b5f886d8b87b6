"""A small OpenTelemetry collector: OTLP over HTTP on loopback, in a thread with a loop of its own."""

import asyncio
import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

Value = str | int | float | bool


class ReceivedSpan:
    """One span with its resource."""

    def __init__(self, resource: dict[str, Value], span: Span) -> None:
        self.service, self.resource, self.span = resource["service.name"], resource, span
        self.name, self.start_ns, self.end_ns = span.name, span.start_time_unix_nano, span.end_time_unix_nano
        self.trace_id, self.span_id, self.parent_id = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
        self.facts = _values(span.attributes)

    @property
    def events(self) -> dict[str, int]:
        """Times of its events."""
        return {event.name: event.time_unix_nano for event in self.span.events}


class Collector:
    """What has come so far."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.url = ""

    def requests(self) -> list[ReceivedSpan]:
        """Spans of requests, by request."""
        return sorted((s for s in self.spans if s.name == "request"), key=lambda s: int(s.facts["stageline.request"]))

    def children(self, of: ReceivedSpan) -> list[ReceivedSpan]:
        """Visits of a request, in the order of time."""
        children = [s for s in self.spans if s.parent_id == of.span_id and s.trace_id == of.trace_id]
        return sorted(children, key=lambda s: s.start_ns)

    async def take(self, request: web.Request) -> web.Response:
        """POST /v1/traces."""
        data = await request.read()
        if request.headers.get("Content-Encoding") == "gzip":
            data = gzip.decompress(data)
        self.headers.append(dict(request.headers))
        if self.status == 200:
            for group in ExportTraceServiceRequest.FromString(data).resource_spans:
                resource = _values(group.resource.attributes)
                self.spans += [ReceivedSpan(resource, span) for scope in group.scope_spans for span in scope.spans]
        return web.Response(status=self.status)


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens inside the context."""
    collector, loop = Collector(), asyncio.new_event_loop()
    app = web.Application()
    app.add_routes([web.post("/v1/traces", collector.take)])
    runner = web.AppRunner(app)
    loop.run_until_complete(runner.setup())
    loop.run_until_complete(web.TCPSite(runner, "127.0.0.1", 0).start())
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield collector
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(runner.cleanup())
        loop.close()


def _values(pairs: "list[KeyValue]") -> dict[str, Value]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
