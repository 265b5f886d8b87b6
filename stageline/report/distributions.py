"""Distributions of latencies: exact where there is one value per request, bucketed where there is one per token.

Percentiles are nearest-rank: p of n values is the value of rank ceil(p * n), one that occurred. Seconds are
ns / 1e9, once, at the end.
"""

from array import array
from typing import Protocol

import msgspec

from stageline.units import NS_PER_S

PERCENTILES = (50, 90, 95, 99)
MANTISSA_BITS = 11  # a bucket is at most 2**-10 of its values wide


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """One latency in summary.json, in seconds; None when nothing was measured."""

    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


class Distribution(Protocol):
    """Values whose percentiles can be asked for."""

    total_ns: int
    max_ns: int

    @property
    def count(self) -> int:
        """How many values."""
        ...

    def at_ranks(self, ranks: list[int]) -> list[int]:
        """The values of these ranks (1-based, ascending)."""
        ...


def latency(values: Distribution) -> Latency:
    """Mean, percentiles and maximum."""
    if not values.count:
        return Latency()
    ranks = [rank_of(p, values.count) for p in PERCENTILES]
    p50, p90, p95, p99 = (v / NS_PER_S for v in values.at_ranks(ranks))
    mean = values.total_ns / values.count / NS_PER_S
    return Latency(mean=mean, p50=p50, p90=p90, p95=p95, p99=p99, max=values.max_ns / NS_PER_S)


def rank_of(percent: int, count: int) -> int:
    """ceil(percent / 100 * count), at least 1, in integers."""
    return max(1, -(-percent * count // 100))


class ExactValues:
    """Every value, 8 bytes each."""

    def __init__(self) -> None:
        self._values = array("q")
        self.total_ns = 0
        self.max_ns = 0

    @property
    def count(self) -> int:
        """How many values."""
        return len(self._values)

    def add(self, value_ns: int) -> None:
        """One value (>= 0)."""
        self._values.append(value_ns)
        self.total_ns += value_ns
        self.max_ns = max(self.max_ns, value_ns)

    def at_ranks(self, ranks: list[int]) -> list[int]:
        """See Distribution. Exact."""
        ordered = sorted(self._values)
        return [ordered[rank - 1] for rank in ranks]


class Histogram:
    """Counts in logarithmic buckets, for too many values to keep (one per token). Mean and maximum are exact.

    A value v >= 2**MANTISSA_BITS loses its bits below the highest MANTISSA_BITS; a percentile is the middle of its
    bucket, so its relative error is at most 2**-MANTISSA_BITS, below 0.05 %. Smaller values are exact.
    """

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0
        self.total_ns = 0
        self.max_ns = 0

    def add(self, value_ns: int) -> None:
        """One value (>= 0)."""
        shift = value_ns.bit_length() - MANTISSA_BITS
        lowest = value_ns >> shift << shift if shift > 0 else value_ns
        self._buckets[lowest] = self._buckets.get(lowest, 0) + 1
        self.count += 1
        self.total_ns += value_ns
        self.max_ns = max(self.max_ns, value_ns)

    def merge(self, other: "Histogram") -> None:
        """Adds all values of another histogram; the same as adding them one by one."""
        for lowest, count in other._buckets.items():
            self._buckets[lowest] = self._buckets.get(lowest, 0) + count
        self.count += other.count
        self.total_ns += other.total_ns
        self.max_ns = max(self.max_ns, other.max_ns)

    def at_ranks(self, ranks: list[int]) -> list[int]:
        """See Distribution. Middles of buckets."""
        found, seen, wanted = list[int](), 0, iter(ranks)
        rank = next(wanted, None)
        for lowest, count in sorted(self._buckets.items()):
            seen += count
            while rank is not None and rank <= seen:
                shift = lowest.bit_length() - MANTISSA_BITS
                found.append(min(lowest + ((1 << shift) >> 1 if shift > 0 else 0), self.max_ns))
                rank = next(wanted, None)
        return found
