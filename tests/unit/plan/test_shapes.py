"""Shapes: all divisions of the devices, and the Pareto front of their results."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from stageline.catalog.loader import Catalog
from stageline.plan.options import PlanOptions
from stageline.plan.shapes import Shape, divisors, shapes
from stageline.report.pareto import pareto_front

SHELF = Catalog()
LLAMA, DEEPSEEK = SHELF.model("llama-3.1-70b").spec, SHELF.model("deepseek-v3").spec
KIMI = SHELF.model("kimi-k3").spec


def test_every_division_of_eight_for_a_dense_model() -> None:
    """tp x pp x dp = 8 has ten solutions."""
    found = list(shapes(LLAMA, 8))
    assert len(found) == len(set(found)) == 10
    assert {(s.tp, s.pp, s.replicas) for s in found} >= {(8, 1, 1), (1, 8, 1), (1, 1, 8), (2, 2, 2)}
    assert all(s.devices == 8 and s.ep == s.cp == 1 for s in found)


def test_experts_are_whole_and_heads_divide() -> None:
    found = list(shapes(DEEPSEEK, 24))
    assert {s.ep for s in found} == {1, 2, 4, 8}  # of the divisors of 24 those that divide 256 experts
    assert all(128 % s.tp == 0 for s in found)
    assert all(96 % s.tp == 0 for s in shapes(KIMI, 64))
    assert {s.tp for s in shapes(KIMI, 64)} == {1, 2, 4, 8, 16, 32}


def test_context_ranks_are_asked_for_and_exclude_replicas_of_attention() -> None:
    assert {s.cp for s in shapes(DEEPSEEK, 16)} == {1}
    found = list(shapes(DEEPSEEK, 16, 4))
    assert {s.cp for s in found} == {1, 2, 4}
    assert all(s.cp == 1 for s in found if s.ep > s.tp)


@given(st.integers(1, 200), st.sampled_from([LLAMA, DEEPSEEK, KIMI]))
def test_every_division_uses_all_devices(devices: int, spec: object) -> None:
    assert isinstance(spec, type(LLAMA))
    for shape in shapes(spec, devices, 2):
        assert shape.devices == devices
        options = msgspec.structs.replace(PlanOptions(), **shape.division())
        assert options.devices is not None and options.devices * options.replicas == devices
        assert options.devices % options.stage_devices == 0
        assert options.devices // options.stage_devices == shape.pp <= len(spec.layers)


def test_names() -> None:
    assert Shape(tp=1, ep=1, cp=1, pp=1, replicas=1).name == "tp1"
    assert Shape(tp=2, ep=4, cp=1, pp=8, replicas=3).name == "tp2 ep4 pp8 dp3"
    assert divisors(12) == [1, 2, 3, 4, 6, 12]


points = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)


@given(points)
def test_the_front_is_what_nothing_beats(found: list[tuple[int, int]]) -> None:
    kept = pareto_front(found, lambda p: p)
    for p, good in zip(found, kept, strict=True):
        beaten = any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in found)
        assert good == (not beaten)
    assert not found or any(kept)
