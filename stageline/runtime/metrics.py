"""What a metric is: its name, type, labels and meaning, declared once; families are made from that.

`metric_names` and `vllm_names` declare them all. docs/metrics.md is generated from there, and a test compares it with
what the servers really export and with what dashboards and alerts ask for.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Literal, TypeVar

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

Kind = Literal["counter", "gauge", "histogram"]
Exporter = Literal["stage", "router", "live router"]
F = TypeVar("F", bound=Metric)
Rows = Iterable[tuple[Sequence[str], float]]


class MetricSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One metric. `name` is the exposed one: counters end in `_total`. A label `pool` is left out where it is empty,
    which it is without a fleet.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    by: tuple[Exporter, ...]
    bounds: tuple[float, ...] = ()

    def single(self, value: float) -> CounterMetricFamily | GaugeMetricFamily:
        """The family of a metric without labels."""
        return self.family([((), value)])

    def family(self, rows: Rows) -> CounterMetricFamily | GaugeMetricFamily:
        """The family with a value per combination of label values."""
        make = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        found = make(self.name.removesuffix("_total"), self.help, labels=self.labels)
        for labels, value in rows:
            found.add_metric(labels, value)
        return _without_empty_pools(found)

    def histogram(self, rows: Iterable[tuple[Sequence[str], "Buckets"]]) -> HistogramMetricFamily:
        """The family of a histogram."""
        found = HistogramMetricFamily(self.name, self.help, labels=self.labels)
        names = [*(_number(bound) for bound in self.bounds), "+Inf"]
        for labels, buckets in rows:
            found.add_metric(labels, list(zip(names, accumulate(buckets.counts), strict=True)), buckets.total)
        return _without_empty_pools(found)

    def buckets(self) -> "Buckets":
        """An empty histogram."""
        return Buckets(self.bounds)


class Buckets:
    """Counts per bucket, and the sum: an observation costs a search among a few dozen bounds."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Counts in the first bucket whose bound is not below the value."""
        self.counts[bisect_left(self._bounds, value)] += times
        self.total += value * times


def _without_empty_pools(family: F) -> F:
    for sample in family.samples:
        if not sample.labels.get("pool", "other"):
            del sample.labels["pool"]
    return family


def _number(bound: float) -> str:
    return str(float(bound))
