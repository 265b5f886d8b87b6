"""Gaps between tokens go into the histograms in bulk, and none is lost."""

from router.metrics.vllm import ReplicaSeries


def test_all_gaps_are_counted_once() -> None:
    engine = ReplicaSeries()
    gaps_ns = [20_000_000] * 700 + [1_000_000 + i for i in range(1000)]
    for gap_ns in gaps_ns:
        engine.gap(gap_ns)
    engine.settle()
    engine.settle()
    for buckets in engine.itl:
        assert sum(buckets.counts) == len(gaps_ns)
        assert abs(buckets.total - sum(gaps_ns) / 1e9) < 1e-6


def test_few_gaps_wait_until_they_are_asked_for() -> None:
    engine = ReplicaSeries()
    engine.gap(30_000_000)
    assert sum(engine.itl[0].counts) == 0
    engine.settle()
    assert [i for i, n in enumerate(engine.itl[0].counts) if n] == [engine.itl[0]._bounds.index(0.05)]
