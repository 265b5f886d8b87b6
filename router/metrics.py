"""What the router tells Prometheus: the figures of the run that goes on, read when it is scraped."""

from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from router.session import RunSession


class RouterCollector(Collector):
    """Counters go on over runs."""

    def __init__(self) -> None:
        self._run: RunSession | None = None
        self._past: Counter[str] = Counter()

    def on_run(self, run: RunSession | None) -> None:
        """A run begins, or (None) the one that went on has ended."""
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
            ("stageline_run_open", "Whether a run goes on.", int(self._run is not None)),
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
