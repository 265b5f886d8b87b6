"""The figures of live sessions for Prometheus."""

from collections.abc import Iterable
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from router.live.delivery import LATENESS_S
from router.live.supervisor import LiveSupervisor
from router.metrics.places import place_of
from stageline.runtime import metric_names as names
from stageline.units import NS_PER_S


class LiveCollector(Collector):
    """Counters add up over sessions."""

    def __init__(self, supervisor: LiveSupervisor) -> None:
        self._supervisor = supervisor

    def collect(self) -> Iterable[Metric]:
        """The families; see docs/metrics.md."""
        supervisor, session = self._supervisor, self._supervisor.session
        slip_ns = supervisor.slipped_ns + (session.clock.slip_ns if session else 0)
        yield names.LIVE_READY.single(float(supervisor.ready))
        yield names.DILATION.single(supervisor.options.dilation)
        yield names.LIVE_REQUESTS.single(session.requests if session else 0)
        yield names.LIVE_WAITING.single(session.waiting if session else 0)
        yield names.LIVE_REFUSED.family(((reason,), count) for reason, count in supervisor.refused.items())
        yield names.SLIP.single(slip_ns / NS_PER_S)
        yield names.RECORDING_FAILURES.single(supervisor.recording_failures)
        overdue, deployment = supervisor.overdue_ns().items(), supervisor.deployment
        yield names.STAGE_OVERDUE.family(
            (place_of(deployment, r, s), owed_ns / NS_PER_S) for (r, s), owed_ns in overdue
        )
        yield names.LIVE_FAILURES.single(supervisor.failures)
        yield names.LIVE_RETRIES.single(supervisor.retries)
        lateness = supervisor.lateness
        bounds = [*(str(bound) for bound in LATENESS_S), "+Inf"]
        yield HistogramMetricFamily(
            names.LATENESS.name,
            names.LATENESS.help,
            buckets=list(zip(bounds, accumulate(lateness.counts), strict=True)),
            sum_value=lateness.total_s,
        )
