"""What prefill and decode apart do follows from the rules alone, as docs/practice.md says: directions, not digits."""

import pytest

import stageline
from bench import disaggregation as bench
from bench.disaggregation import PREFILL_HEAVY, divided, example, kept, limited, linked

TOGETHER, APART = example("together"), example("apart")
SHORT = PREFILL_HEAVY._replace(requests=120)


def test_the_longest_gaps_fall_when_prefill_leaves_the_decode_replicas() -> None:
    """Measured: P99 ITL 295 ms with two servers, 20 ms with one for each (Mooncake with SGLang, 4 requests/s)."""
    apart = stageline.run(APART, SHORT.at(6), seed=1, keep_requests=False).summary
    for tokens in bench.BUDGETS:
        together = stageline.run(limited(TOGETHER, 0, batched_tokens=tokens), SHORT.at(6), seed=1).summary
        assert together.itl_s.p99 > 2 * apart.itl_s.p99
        assert together.itl_s.p50 == pytest.approx(apart.itl_s.p50, rel=0.05)
        assert together.ttft_s.p99 < apart.ttft_s.p99  # what it costs: four replicas prefill, and not two


@pytest.mark.parametrize(
    ("slo", "rate", "gains"), [(bench.SLO, 5, True), (bench.RELAXED, 11, False)], ids=["tight", "relaxed"]
)
def test_goodput_rises_on_prefill_heavy_traffic_where_gaps_have_a_tight_target(
    slo: str, rate: float, gains: bool
) -> None:
    fleets = [limited(TOGETHER, 0, batched_tokens=tokens) for tokens in bench.BUDGETS]
    assert any(kept(divided(APART, p, 4 - p), SHORT, rate, slo) for p in (2, 3))
    assert any(kept(fleet, SHORT, rate, slo) for fleet in fleets) != gains


def test_goodput_hardly_rises_on_decode_heavy_traffic() -> None:
    """Where it triples on prefill-heavy traffic, it gains less than a sixth here, with either ratio."""
    assert kept(TOGETHER, bench.DECODE_HEAVY, 29)
    assert not any(kept(divided(APART, p, 4 - p), bench.DECODE_HEAVY, 33.5) for p in (1, 2))


def test_too_few_decode_replicas_strand_prefill_kv() -> None:
    """Three replicas with the load that two of them decode: with one, no prompt has room for a third of the run."""
    stranded = example("stranded")
    load = bench.STRANDED._replace(requests=80).at(1)
    few, enough = (stageline.run(divided(stranded, *n), load, seed=1) for n in ((2, 1), (1, 2)))
    assert few.summary.requests_per_s < 0.85 * enough.summary.requests_per_s
    assert few.summary.pools[0].busy_ratio < 0.2
    assert bench.pinned(few).stopped_ratio > 0.3
    assert bench.pinned(enough).stopped_ratio < 0.05
    assert few.rows()[-1]["ttft_s"] > 5 * enough.rows()[-1]["ttft_s"]


def test_a_slow_network_turns_the_gain_into_a_loss() -> None:
    """Two requests a second, which replicas that do both serve: 10 GbE is too slow for them, 40 Gbit/s is not."""
    assert kept(limited(TOGETHER, 0, batched_tokens=512), SHORT, 2)
    assert kept(linked(APART, 5 * bench.GIGABYTE), SHORT, 2)
    assert not kept(linked(APART, bench.GIGABYTE * 5 // 4), SHORT, 2)


@pytest.mark.parametrize("prefill", [1, 3], ids=["prefill binds", "decode binds"])
def test_the_slower_pool_of_real_plans_sets_the_pace(prefill: int) -> None:
    one, decode = bench.prefill_capacity(1, 200), bench.saturated(8, 200)
    assert one < decode < 3 * one
    assert bench.saturated(prefill, 200) == pytest.approx(min(prefill * one, decode), rel=0.01)
