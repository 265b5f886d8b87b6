"""What live sessions tell Prometheus."""

from collections.abc import Iterable
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from router.live.delivery import LATENESS_S
from router.live.keeper import LiveKeeper


class LiveCollector(Collector):
    """Counters go on over sessions."""

    def __init__(self, keeper: LiveKeeper) -> None:
        self._keeper = keeper

    def collect(self) -> Iterable[Metric]:
        """The families; see docs/metrics.md."""
        keeper, session = self._keeper, self._keeper.session
        slip_ns = keeper.slipped_ns + (session.clock.slip_ns if session else 0)
        gauges = (
            ("stageline_live_ready", "Whether requests are taken.", float(keeper.ready)),
            ("stageline_live_dilation", "Wall time per emulated time.", keeper.options.dilation),
            ("stageline_live_requests", "Requests being served.", session.live if session else 0),
            ("stageline_live_requests_waiting", "Requests that wait.", session.waiting if session else 0),
        )
        for name, text, value in gauges:
            yield GaugeMetricFamily(name, text, value=value)
        yield CounterMetricFamily(
            "stageline_clock_slip_seconds",
            "Wall time that the emulated clock waited for this host.",
            value=slip_ns / 1e9,
        )
        yield CounterMetricFamily("stageline_live_failures", "Sessions that broke off.", value=keeper.failures)
        lateness = keeper.lateness
        bounds = [*(str(bound) for bound in LATENESS_S), "+Inf"]
        yield HistogramMetricFamily(
            "stageline_delivery_lateness_seconds",
            "Wall time from a token's due time to its delivery.",
            buckets=list(zip(bounds, accumulate(lateness.counts), strict=True)),
            sum_value=lateness.total_s,
        )
