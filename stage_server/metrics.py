"""What a stage server tells Prometheus: its machine's own figures, read when it is scraped."""

import time
from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from stage_server.session import StageSession
from stageline.engine.attribution import GAP_CAUSES
from stageline.engine.types import CAUSES

_NS = 1e9


class StageCollector(Collector):
    """Counters go on over sessions. Between sessions the server is idle for want of requests: wall time as `empty`."""

    def __init__(self, stage: int = -1, replica: int = -1) -> None:
        self._labels = [str(max(stage, 0)), str(max(replica, 0))]
        self._session: StageSession | None = None
        self._idle_since_ns = time.monotonic_ns()
        self._past: Counter[tuple[str, ...]] = Counter()

    def on_session(self, session: StageSession | None) -> None:
        """A session begins, or (None) the one that went on has ended."""
        now = time.monotonic_ns()
        if session is None:
            self._past += self._current()
            self._session, self._idle_since_ns = None, now
        else:
            self._past["idle", "empty"] += now - self._idle_since_ns
            self._session = session
            self._labels = [str(session.index), str(session.replica)]

    def collect(self) -> Iterable[Metric]:
        """The families; each says itself what it is."""
        values = self._past + self._current()
        names = ["stage", "replica"]
        session = self._session
        ledger = session.node.stage.ledger if session else None

        def counter(name: str, text: str, key: str) -> CounterMetricFamily:
            family = CounterMetricFamily(name, text, labels=names)
            family.add_metric(self._labels, values[(key,)])
            return family

        busy = CounterMetricFamily("stageline_stage_busy_seconds", "Emulated time spent serving.", labels=names)
        busy.add_metric(self._labels, values[("busy",)] / _NS)
        idle = CounterMetricFamily(
            "stageline_stage_idle_seconds", "Emulated idle time by cause.", labels=[*names, "cause"]
        )
        for cause in CAUSES:
            idle.add_metric([*self._labels, cause], values["idle", cause] / _NS)
        sent = CounterMetricFamily(
            "stageline_link_payload_bytes", "Activation bytes sent on a link.", labels=[*names, "link"]
        )
        for key in sorted(key for key in values if key[0] == "link"):
            sent.add_metric([*self._labels, key[1]], values[key])
        yield from (busy, idle, sent)
        yield counter("stageline_stage_microbatches", "Microbatches served, all visits.", "microbatches")
        yield counter("stageline_stage_frames", "Frames received.", "frames")
        yield counter("stageline_stage_promise_frames", "Frames received that carried a promise only.", "promises")
        yield counter("stageline_stage_frame_microbatches", "Microbatches received in frames.", "items")
        yield counter("stageline_stage_asks", "Promises asked for.", "asks")
        gauges = (
            ("stageline_stage_kv_used_bytes", "KV in the ledger.", ledger.used_bytes if ledger else 0),
            ("stageline_stage_kv_budget_bytes", "What the ledger may hold.", ledger.budget_bytes if ledger else 0),
            ("stageline_emulated_seconds", "Emulated clock.", session.node.stage.free_ns / _NS if session else 0),
            ("stageline_session_open", "Whether a router holds this stage.", int(session is not None)),
        )
        for name, text, value in gauges:
            family = GaugeMetricFamily(name, text, labels=names)
            family.add_metric(self._labels, value)
            yield family

    def _current(self) -> Counter[tuple[str, ...]]:
        """The figures of the session that goes on, or of the idle time since the last one."""
        session = self._session
        if session is None:
            return Counter({("idle", "empty"): time.monotonic_ns() - self._idle_since_ns})
        stage = session.node.stage
        decoders = [link.decoder for link in session.in_links.values()]
        values: Counter[tuple[str, ...]] = Counter(
            {("idle", cause): gap for cause, gap in zip(GAP_CAUSES, stage.gap_ns, strict=True)}
        )
        values["busy",] = stage.busy_ns
        values["microbatches",] = stage.services
        values["frames",] = sum(d.frames for d in decoders)
        values["promises",] = sum(d.promise_frames for d in decoders)
        values["items",] = sum(d.items for d in decoders)
        values["asks",] = sum(link.asks for link in session.in_links.values())
        for number, link in session.out_links.items():
            values["link", str(number)] = link.encoder.payload_bytes
        return values
