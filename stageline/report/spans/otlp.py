"""Spans on their way to an OpenTelemetry collector: OTLP over HTTP, made and sent by a thread of their own.

The only module that knows OpenTelemetry, which is an extra. Its usual settings by environment
(OTEL_EXPORTER_OTLP_HEADERS, _CERTIFICATE, _COMPRESSION) hold here too.
"""

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from stageline.errors import BadInput, UsageError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

Make = Callable[[], "list[ReadableSpan]"]
PATH = "/v1/traces"
_BATCH_SPANS = 512
_QUEUED_TRACES = 1_000
_TIMEOUT_S = 5.0

log = logging.getLogger(__name__)


class Exporter(Protocol):
    """Sends spans. False: they are lost."""

    def send(self, spans: "Sequence[ReadableSpan]") -> bool:
        """Returns when the collector has them, or does not take them."""
        ...

    def close(self) -> None:
        """Lets go of the connection."""
        ...


class OtlpExporter:
    """The collector at an http:// or https:// address; without a path, /v1/traces. UsageError without the extra."""

    def __init__(self, endpoint: str) -> None:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput("--otlp", endpoint, "not an address of a collector", "write it like http://localhost:4318")
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
            from opentelemetry.sdk.trace.export import SpanExportResult  # noqa: PLC0415
        except ImportError:
            raise UsageError("--otlp needs OpenTelemetry: install stageline[otel]") from None
        self.endpoint = endpoint if parts.path.strip("/") else endpoint.rstrip("/") + PATH
        library = logging.getLogger("opentelemetry")  # what is lost is counted and told here
        library.propagate = False
        library.addHandler(logging.NullHandler())
        self._exporter = OTLPSpanExporter(endpoint=self.endpoint, timeout=_TIMEOUT_S)
        self._good = SpanExportResult.SUCCESS

    def send(self, spans: "Sequence[ReadableSpan]") -> bool:
        """See Exporter."""
        return self._exporter.export(spans) is self._good

    def close(self) -> None:
        """See Exporter."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]


class SpanSender:
    """A thread that makes and sends spans. `close` returns when all have left or are lost.

    `waits`: whoever puts waits while the queue is full (a run: nothing is lost that way, and after a failure nothing
    more is tried); otherwise (a server) requests beyond the queue are lost, and every batch is tried anew.
    """

    def __init__(self, exporter: Exporter, *, waits: bool) -> None:
        self._exporter, self._waits = exporter, waits
        self._queue: queue.Queue[Make | None] = queue.Queue(_QUEUED_TRACES)
        self._closing = False
        self._broken = False
        self.sent = 0  # spans
        self.lost = 0  # spans, or requests that did not even become spans
        self._thread = threading.Thread(target=self._work, name="spans", daemon=True)
        self._thread.start()

    def put(self, make: "Make") -> None:
        """Takes the spans of a request that has ended; the thread makes them."""
        try:
            self._queue.put(make, block=self._waits)
        except queue.Full:
            self.lost += 1

    def close(self) -> None:
        """The last one has been put."""
        self._closing = True
        self._queue.put(None)
        self._thread.join()
        self._exporter.close()

    def _work(self) -> None:
        batch: list[ReadableSpan] = []
        while (make := self._queue.get()) is not None:
            try:
                batch += make()
            except Exception:  # a request must never wait for its trace, whatever is wrong with that
                self.lost += 1
                log.exception("spans could not be made")
            if len(batch) >= _BATCH_SPANS or self._queue.empty():
                self._send(batch)
                batch = []
        self._send(batch)

    def _send(self, batch: "list[ReadableSpan]") -> None:
        for start in range(0, len(batch), _BATCH_SPANS):
            part = batch[start : start + _BATCH_SPANS]
            if not self._broken and self._exporter.send(part):
                self.sent += len(part)
                continue
            self.lost += len(part)
            self._broken = self._waits or self._closing  # nobody waits for a collector that is gone
            if not self._waits:
                log.warning("spans could not be sent", extra={"spans": len(part), "lost": self.lost})
