"""Which decode stages take the KV of a prefill stage: those that hold its layers."""

import msgspec
import pytest

from stageline.engine.kv_shares import KvShares
from stageline.plan.schema import Plan
from stageline.testing import uniform_plan


def cut(*layers: range | list[int]) -> Plan:
    plan = uniform_plan(len(layers))
    stages = (msgspec.structs.replace(s, layers=tuple(ls)) for s, ls in zip(plan.stages, layers, strict=True))
    return msgspec.structs.replace(plan, stages=tuple(stages))


TWO = cut(range(3), range(3, 6))
THREE = cut(range(2), range(2, 4), range(4, 6))


def test_bytes_go_to_the_holders_of_the_layers() -> None:
    shares = KvShares(TWO, THREE)
    assert list(shares.split(0, 30)) == [(0, 20), (1, 10)]
    assert list(shares.split(1, 30)) == [(1, 10), (2, 20)]
    assert list(KvShares(THREE, TWO).split(1, 7)) == [(0, 3), (1, 4)]


def test_equal_cuts_are_one_to_one() -> None:
    assert [list(KvShares(THREE, THREE).split(s, 9)) for s in range(3)] == [[(0, 9)], [(1, 9)], [(2, 9)]]


def test_an_interleaved_pipeline_sends_to_whoever_holds_each_layer() -> None:
    """Stage 0 has layers 0, 1, 4 and 5."""
    shares = KvShares(cut([0, 1, 4, 5], [2, 3]), THREE)
    assert list(shares.split(0, 40)) == [(0, 20), (2, 20)]
    assert list(shares.split(1, 40)) == [(1, 40)]


def test_stages_without_layers_and_plans_with_fewer_layers_lose_nothing() -> None:
    assert list(KvShares(cut(range(2), []), TWO).split(1, 5)) == [(1, 5)]
    assert list(KvShares(cut([0], [1]), TWO).split(1, 5)) == [(1, 5)]
    assert list(KvShares(TWO, cut([], [])).split(1, 5)) == [(0, 5)]


@pytest.mark.parametrize("size", [0, 1, 2, 999_999_999_999, 7919])
@pytest.mark.parametrize(("source", "target"), [(TWO, THREE), (THREE, TWO), (cut([0, 5], range(1, 5)), THREE)])
def test_nothing_is_lost_in_rounding(source: Plan, target: Plan, size: int) -> None:
    for stage in range(len(source.stages)):
        parts = list(KvShares(source, target).split(stage, size))
        assert sum(part for _, part in parts) == size
        assert all(part > 0 for _, part in parts)
