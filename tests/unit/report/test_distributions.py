"""Percentiles: nearest rank, exact per request, within the stated error per token."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stageline.report.distributions import MANTISSA_BITS, ExactValues, Histogram, Latency, latency, rank_of

VALUES = st.lists(st.integers(0, 10**13), min_size=1, max_size=200)


@given(VALUES)
def test_series_is_nearest_rank(values: list[int]) -> None:
    series = ExactValues()
    for value in values:
        series.add(value)
    ordered = sorted(values)
    result = latency(series)
    for percent, got in ((50, result.p50), (90, result.p90), (95, result.p95), (99, result.p99)):
        rank = next(r for r in range(1, len(values) + 1) if 100 * r >= percent * len(values))
        assert got == ordered[rank - 1] / 1e9
    assert result.max == max(values) / 1e9
    assert result.mean == pytest.approx(math.fsum(values) / len(values) / 1e9)


@given(VALUES)
def test_histogram_stays_within_its_error(values: list[int]) -> None:
    exact, bucketed = ExactValues(), Histogram()
    for value in values:
        exact.add(value)
        bucketed.add(value)
    ranks = sorted({rank_of(p, len(values)) for p in (1, 50, 90, 95, 99, 100)})
    for truth, got in zip(exact.at_ranks(ranks), bucketed.at_ranks(ranks), strict=True):
        assert abs(got - truth) <= truth * 0.0005  # what the docs promise
    assert (bucketed.count, bucketed.total_ns, bucketed.max_ns) == (len(values), sum(values), max(values))


def test_the_histogram_stays_small() -> None:
    histogram = Histogram()
    for i in range(100_000):
        histogram.add(1_000_000 + 10 * i)  # one octave
    assert len(histogram._buckets) <= 2**MANTISSA_BITS


def test_nothing_measured() -> None:
    assert latency(ExactValues()) == Latency()
    assert latency(Histogram()) == Latency()
