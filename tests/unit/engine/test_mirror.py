"""The mirror of all ledgers, and the ledger itself."""

import random

import msgspec
import pytest

from stageline.engine.ledger import Ledger
from stageline.engine.microbatch import Grant
from stageline.engine.mirror import KvMirror
from stageline.errors import KvOverdraw, LawBroken
from stageline.plan.schema import KvWindow, Plan, StagePlan
from tests.unit.engine.builders import plan


def with_stages(*weights: tuple[int, int, int]) -> Plan:
    """Stages of (block bytes, state bytes, budget)."""
    base = plan(tuple(range(len(weights))))
    stages = tuple(
        StagePlan(name=f"s{i}", layers=(i,), kv_block_bytes=b, state_bytes=s, kv_budget_bytes=k)
        for i, (b, s, k) in enumerate(weights)
    )
    return Plan(
        model="m", device="d", stages=stages, visits=base.visits, links=base.links, costs=base.costs,
        defaults=base.defaults, block_tokens=4,
    )  # fmt: skip


def test_fits_agrees_with_every_single_stage() -> None:
    rnd = random.Random(3)
    refused = 0
    for _ in range(300):
        weights = [(rnd.randint(0, 5), rnd.randint(0, 9), rnd.randint(0, 60)) for _ in range(rnd.randint(1, 6))]
        mirror = KvMirror(with_stages(*weights))
        blocks, states = rnd.randint(0, 12), rnd.randint(0, 6)
        expected = all(b * blocks + s * states <= k for b, s, k in weights)
        assert mirror.fits(blocks, states) == expected, (weights, blocks, states)
        refused += not expected
    assert 0 < refused < 300


def test_a_refusal_is_booked_on_the_tightest_stage() -> None:
    mirror = KvMirror(with_stages((1, 0, 100), (4, 0, 100), (1, 1, 100)))
    assert not mirror.fits(30, 1)
    mirror.count_refusal(30, 1)
    assert mirror.refusals == [0, 1, 0]


def test_what_is_freed_is_what_was_allocated_in_windows_too() -> None:
    """A window of 3 blocks: of 2 + 4 blocks it keeps 3, and it gives back what it kept."""
    base = with_stages((1, 10, 1000))
    windowed = msgspec.structs.replace(base.stages[0], kv_windows=(KvWindow(most_blocks=3, block_bytes=100),))
    mirror = KvMirror(msgspec.structs.replace(base, stages=(windowed,)))
    mirror.allocate(2, 1, mirror.kept_of(2))
    mirror.allocate(4, 0, mirror.kept_of(4, 2))
    assert mirror.used_bytes(0) == 6 + 10 + 300
    mirror.free(4, 0, mirror.kept_of(4, 2))
    assert mirror.used_bytes(0) == 2 + 10 + 200
    mirror.free(2, 1, mirror.kept_of(2))
    assert (mirror.used_bytes(0), mirror.blocks, mirror.states, mirror.kept) == (0, 0, 0, [0])


def test_peaks_are_those_of_the_ledgers() -> None:
    weights = [(1, 10, 1000), (4, 0, 1000)]
    the_plan = with_stages(*weights)
    mirror, ledgers = KvMirror(the_plan), [Ledger(s) for s in the_plan.stages]
    for releases, grants in [((), ((0, 5, 1, 0), (1, 2, 1, 0))), ((0,), ()), ((), ((2, 1, 1, 0),))]:
        mirror.free(5 if releases else 0, len(releases))
        for _, blocks, states, _ in grants:
            mirror.allocate(blocks, states)
        mirror.sample_peaks()
        for ledger in ledgers:
            ledger.apply(releases, grants)
    assert [mirror.peak_bytes(i) for i in range(2)] == [ledger.peak_bytes for ledger in ledgers] == [27, 28]
    assert [mirror.used_bytes(i) for i in range(2)] == [ledger.used_bytes for ledger in ledgers] == [23, 12]


def test_releases_come_before_grants() -> None:
    ledger = Ledger(StagePlan(name="s", layers=(), kv_block_bytes=10, kv_budget_bytes=50))
    ledger.apply((), ((1, 5, 1, 0),))
    ledger.apply((1,), ((2, 5, 1, 0),))
    assert ledger.used_bytes == 50
    ledger.check()


def test_nothing_may_be_held_at_the_end() -> None:
    ledger = Ledger(StagePlan(name="s", layers=(), kv_block_bytes=10, kv_budget_bytes=50))
    ledger.apply((), ((1, 2, 1, 0), (2, 3, 1, 0)))
    with pytest.raises(LawBroken, match="30 B are still held by 1 owners"):
        ledger.close((1,))
    ledger.close((2,))


@pytest.mark.parametrize(
    ("releases", "grants", "complaint"),
    [((9,), (), "owner 9 is released"), ((), ((1, 6, 1, 0),), "60 of 50 B"), ((), ((1, -1, 0, 0),), "-1 blocks")],
)
def test_a_ledger_refuses_what_it_can_not_hold(
    releases: tuple[int, ...], grants: tuple[Grant, ...], complaint: str
) -> None:
    ledger = Ledger(StagePlan(name="s", layers=(), kv_block_bytes=10, kv_budget_bytes=50))
    with pytest.raises(KvOverdraw, match=complaint):
        ledger.apply(releases, grants)
