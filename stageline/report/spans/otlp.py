"""Makes spans and sends them to an OpenTelemetry collector (OTLP over HTTP), in a thread of its own.

OpenTelemetry is an extra: only the exporter here and `maker` import it. Its usual environment variables apply
(OTEL_EXPORTER_OTLP_HEADERS, _CERTIFICATE, _COMPRESSION).
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


class SpanExporter(Protocol):
    """Sends spans."""

    def send(self, spans: "Sequence[ReadableSpan]") -> bool:
        """Whether the collector has accepted them; if not, they are lost."""
        ...

    def close(self) -> None:
        """Closes the connection."""
        ...


class OtlpExporter:
    """The collector at an http:// or https:// address; without a path, /v1/traces. UsageError without the extra."""

    def __init__(self, endpoint: str) -> None:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput("--otlp", endpoint, "not a collector's address", "write it like http://localhost:4318")
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
            from opentelemetry.sdk.trace.export import SpanExportResult  # noqa: PLC0415
        except ImportError:
            raise UsageError("--otlp needs OpenTelemetry: install stageline[otel]") from None
        self.endpoint = endpoint if parts.path.strip("/") else endpoint.rstrip("/") + PATH
        library = logging.getLogger("opentelemetry")  # losses are counted and logged here
        library.propagate = False
        library.addHandler(logging.NullHandler())
        self._exporter = OTLPSpanExporter(endpoint=self.endpoint, timeout=_TIMEOUT_S)
        self._good = SpanExportResult.SUCCESS

    def send(self, spans: "Sequence[ReadableSpan]") -> bool:
        """See SpanExporter."""
        return self._exporter.export(spans) is self._good

    def close(self) -> None:
        """See SpanExporter."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]


class SpanSender:
    """A thread that makes and sends spans. `close` returns when all are sent or lost.

    With `waits` (a run), `put` blocks while the queue is full, so that no request is lost there, and the first failure
    ends all sending. Without (a server), requests that find the queue full are lost, and every batch is tried.
    """

    def __init__(self, exporter: SpanExporter, *, waits: bool) -> None:
        self._exporter, self._waits = exporter, waits
        self._queue: queue.Queue[Make | None] = queue.Queue(_QUEUED_TRACES)
        self._closing = False
        self._broken = False
        self.sent = 0  # spans
        self.lost = 0  # spans, or requests whose spans were never made
        self._thread = threading.Thread(target=self._work, name="spans", daemon=True)
        self._thread.start()

    def put(self, make: "Make") -> None:
        """Queues the spans of a request that has ended; the thread makes them."""
        try:
            self._queue.put(make, block=self._waits)
        except queue.Full:
            self.lost += 1

    def close(self) -> None:
        """Sends what is queued, and stops. No `put` may follow."""
        self._closing = True
        self._queue.put(None)
        self._thread.join()
        self._exporter.close()

    def _work(self) -> None:
        batch: list[ReadableSpan] = []
        while (make := self._queue.get()) is not None:
            try:
                batch += make()
            except Exception:  # whatever is wrong with a trace, its request must not fail
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
            self._broken = self._waits or self._closing  # neither waits for a collector that is gone
            if not self._waits:
                log.warning("spans could not be sent", extra={"spans": len(part), "lost": self.lost})
