"""The prefix cache in summary.json and in the text report."""

import pytest

from stageline.engine.types import PrefixStats
from stageline.report.prefix import prefix_summary, prefix_text

STATS = (
    PrefixStats(
        queried_blocks=10, hit_blocks=4, queried_tokens=160, hit_tokens=64, evictions=3, saved_prefill_ns=1_500_000_000
    ),
    PrefixStats(queried_blocks=30, hit_blocks=4, queried_tokens=480, hit_tokens=64, saved_prefill_ns=500_000_000),
)


def test_totals_are_sums_and_not_means_of_ratios() -> None:
    summary = prefix_summary(STATS)
    assert summary is not None
    assert (summary.block_hit_ratio, summary.token_hit_ratio) == (0.2, 0.2)
    assert (summary.evictions, summary.saved_prefill_s) == (3, 2.0)
    assert [r.block_hit_ratio for r in summary.replicas] == [0.4, pytest.approx(4 / 30)]
    assert [r.evictions for r in summary.replicas] == [3, 0]


def test_without_a_cache_there_is_nothing_to_say() -> None:
    assert prefix_summary(()) is None


def test_a_cache_that_was_never_asked_hit_nothing() -> None:
    summary = prefix_summary((PrefixStats(),))
    assert summary is not None
    assert (summary.block_hit_ratio, summary.token_hit_ratio) == (0.0, 0.0)


def test_the_line_of_the_report() -> None:
    summary = prefix_summary(STATS)
    assert summary is not None
    assert prefix_text(summary) == "20.0% of blocks, 20.0% of tokens hit; 2.0 s of prefill saved; 3 evictions"
