"""Batching policies: how many sequences a microbatch may hold (rule 5)."""

import msgspec
import pytest

from stageline.cost.entries import Affine
from stageline.cost.totals import BatchTotals
from stageline.engine.policies.batching import BATCHING
from stageline.engine.policies.batching_policy import BatchingPolicy
from stageline.engine.route import Route
from stageline.engine.settings import Scheduling
from stageline.errors import UsageError
from tests.unit.engine.builders import plan


def batching(scheduling: Scheduling, route: Route, credits_: int, largest: int) -> BatchingPolicy:
    return BATCHING.find(scheduling)(route, credits_, largest, scheduling)


def test_limits() -> None:
    route = Route(plan())
    balanced = batching(Scheduling(), route, 4, 8)
    assert [balanced.limit(running, 1, 0) for running in (0, 3, 4, 100)] == [1, 1, 2, 8]
    assert batching(Scheduling(batching="greedy"), route, 4, 8).limit(1, 0, 0) == 8
    with pytest.raises(UsageError, match="--batching slo needs a TPOT to keep: give --slo tpot=50ms"):
        batching(Scheduling(batching="slo"), route, 4, 8)


def test_slo_is_the_largest_size_that_keeps_the_target() -> None:
    route = Route(plan((0, 1), service_ns=100, latency_ns=10, bytes_per_token=1))
    # A trip is 2 x 100 ns, three hops of 10 ns, and one ns per member on each hop; 2 credits x 100 ns is less.
    for target_ns, expected in [(229, 1), (233, 1), (236, 2), (254, 8), (10**6, 8)]:
        target = Scheduling(batching="slo", tpot_slo_ns=target_ns)
        assert batching(target, route, 2, 8).limit(1, 0, 10) == expected, target_ns
    # 9 credits x 100 ns: even one misses it
    busy = batching(Scheduling(batching="slo", tpot_slo_ns=800), route, 9, 8)
    assert busy.limit(1, 0, 10) == 1


def test_slo_lets_a_step_take_the_target_for_every_token_that_it_yields() -> None:
    """Two drafts, each right every second time: 1.75 tokens a step. Drafting takes 8 ns, a hop 3 ns per member."""
    route = Route(plan((0, 1), service_ns=100, latency_ns=10, bytes_per_token=1))
    drafting = Scheduling(batching="slo", speculate=2, acceptance_ppm=500_000, draft_ns=4)

    def limit(credits_: int, target_ns: int) -> int:
        return batching(msgspec.structs.replace(drafting, tpot_slo_ns=target_ns), route, credits_, 8).limit(1, 0, 10)

    # A step of four takes 8 + 2 x 100 + 3 x (10 + 12) = 274 ns, of five 283: 1.75 x 156 = 273, x 157 = 274.75, ...
    assert [limit(2, target_ns) for target_ns in (156, 157, 161, 162)] == [3, 4, 4, 5]
    # Nine credits take turns at drafting and the first stage, 9 x 108 = 972 ns: 1.75 x 555 = 971.25, x 556 = 973.
    assert [limit(9, target_ns) for target_ns in (555, 556)] == [1, 8]


def test_slo_counts_the_work_of_verification() -> None:
    """Costs by new token, KV token and row: the limit is what a step of that many members really takes."""
    cost = Affine(base_ns=100, token_ns=10, kv_token_ns=1, sampled_ns=5)
    base = plan((0,), latency_ns=0, bytes_per_token=0)
    route = Route(msgspec.structs.replace(base, costs=(cost,)))
    settings = Scheduling(batching="slo", speculate=3, acceptance_ppm=0)
    for members in (1, 2, 5):
        load = BatchTotals(members, 4 * members, members * (256 + 3), sampled=4 * members)
        exact = msgspec.structs.replace(settings, tpot_slo_ns=route.models[0].service_ns(load))
        less = msgspec.structs.replace(exact, tpot_slo_ns=exact.tpot_slo_ns - 1)
        assert batching(exact, route, 1, 8).limit(1, 0, 200) == members
        assert batching(less, route, 1, 8).limit(1, 0, 200) == max(1, members - 1)
