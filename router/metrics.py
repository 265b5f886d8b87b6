"""What the router tells Prometheus: the figures of the run that goes on, read when it is scraped."""

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from router.mesh import Mesh
from stageline.engine.router import Router
from stageline.v1 import router_pb2


class Session(Protocol):
    """A run or a live session."""

    router: Router
    mesh: Mesh

    def progress(self) -> router_pb2.Progress:
        """How far it is."""
        ...


class RouterCollector(Collector):
    """Counters go on over runs and live sessions."""

    def __init__(self) -> None:
        self._run: Session | None = None
        self._past: Counter[str] = Counter()

    def on_run(self, run: Session | None) -> None:
        """A run or a live session begins, or (None) the one that went on has ended."""
        if run is None:
            self._past += self._current()
        self._run = run

    def collect(self) -> Iterable[Metric]:
        """The families; each says itself what it is."""
        values = self._past + self._current()
        counters = (
            ("stageline_requests", "Requests that arrived.", "requests"),
            ("stageline_requests_finished", "Requests that were served to their end.", "finished"),
            ("stageline_requests_failed", "Requests refused or given up.", "failed"),
            ("stageline_microbatches", "Microbatches dispatched.", "microbatches"),
            ("stageline_frames", "Frames that came back.", "frames"),
            ("stageline_frame_microbatches", "Microbatches that came back in frames.", "items"),
        )
        for name, text, key in counters:
            yield CounterMetricFamily(name, text, value=values[key])
        progress = self._run.progress() if self._run else None
        gauges = (
            ("stageline_requests_running", "Admitted requests.", progress.running if progress else 0),
            ("stageline_requests_waiting", "Requests that wait for admission.", progress.waiting if progress else 0),
            ("stageline_emulated_seconds", "Emulated clock.", progress.now_ns / 1e9 if progress else 0),
            ("stageline_run_open", "Whether a run or a live session goes on.", int(self._run is not None)),
        )
        for name, text, value in gauges:
            yield GaugeMetricFamily(name, text, value=value)

    def _current(self) -> Counter[str]:
        run = self._run
        if run is None:
            return Counter()
        decoders = [link.decoder for link in run.mesh.in_links]
        return Counter(
            requests=run.router.arrived,
            finished=run.router.finished,
            failed=run.router.failed,
            microbatches=sum(r.formed for r in run.router.replicas),
            frames=sum(d.frames for d in decoders),
            items=sum(d.items for d in decoders),
        )
