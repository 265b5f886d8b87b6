"""The reference case, Kimi K3 on WSE-3T wafers: how the layer order changes the result of the published rule."""

import msgspec
import pytest

from stageline.catalog.loader import Catalog
from stageline.cost.entries import Affine
from stageline.plan.build import Planned, make_plan
from stageline.plan.check import check_plan
from stageline.plan.explain import explain
from stageline.plan.options import LayerBytes, Placement, PlanOptions
from stageline.plan.report import plan_report
from stageline.plan.timing import decode_totals, pipeline_timing

SHELF = Catalog()
K3 = SHELF.model("kimi-k3").spec
WAFER = SHELF.device("wse-3t").device


def planned(placement: Placement = "fewest", layer_bytes: LayerBytes = "exact", **options: object) -> Planned:
    asked = PlanOptions(placement=placement, layer_bytes=layer_bytes)
    return make_plan(K3, WAFER, msgspec.structs.replace(asked, **options))


@pytest.mark.parametrize(
    ("placement", "layer_bytes", "consecutive", "devices", "visits"),
    [
        ("by-kind", "nominal", False, 59, 70),
        ("by-kind", "nominal", True, 70, 70),
        ("by-kind", "exact", False, 58, 69),
        ("by-kind", "exact", True, 69, 69),
        ("fewest", "nominal", False, 47, 47),
        ("fewest", "exact", False, 46, 46),
    ],
)
def test_wafers_and_visits(
    placement: Placement, layer_bytes: LayerBytes, consecutive: bool, devices: int, visits: int
) -> None:
    found = planned(placement, layer_bytes, consecutive=consecutive)
    summary = plan_report(found)
    assert (summary.devices, summary.visits) == (devices, visits)
    check_plan(found.plan, "plan")


def test_the_59_wafer_route_visits_eleven_wafers_twice() -> None:
    plan = planned("by-kind", "nominal").plan
    visits = [visit.stage for visit in plan.visits]
    twice = [stage for stage in set(visits) if visits.count(stage) == 2]
    assert len(twice) == 11
    assert max(visits.count(stage) for stage in visits) == 2
    assert [layer for visit in plan.visits for layer in visit.layers] == list(range(93))
    for stage in twice:
        low, high = plan.stages[stage].layers
        assert high - low == 2  # a full-attention layer is between them
        assert not K3.layers[low + 1].attention.linear


def test_full_attention_layers_sit_alone() -> None:
    plan = planned("by-kind", "exact").plan
    for stage in plan.stages:
        if any(not K3.layers[layer].attention.linear for layer in stage.layers):
            assert len(stage.layers) == 1
    assert plan.stages[0].layers == (0, 1, 2)


def test_the_46_wafer_plan() -> None:
    plan = planned().plan
    assert [len(stage.layers) for stage in plan.stages] == [3] + [2] * 45
    assert round(plan.stages[0].weight_bytes / 1e9, 1) == 38.7
    free = {len(set(kinds)): size for kinds, size in ((stage_kinds(s.layers), s.kv_budget_bytes) for s in plan.stages)}
    assert round(free[2] / 1e9, 2) == 10.44  # one layer of each kind
    pairs = [s for s in plan.stages[1:] if set(stage_kinds(s.layers)) == {True}]
    assert {round(stage.kv_budget_bytes / 1e9, 2) for stage in pairs} == {10.02}


def stage_kinds(layers: tuple[int, ...]) -> list[bool]:
    return [K3.layers[i].attention.linear for i in layers]


def test_a_wafer_with_the_head_loses_235_gb() -> None:
    plan = planned("by-kind", "exact").plan
    assert round((plan.stages[-2].kv_budget_bytes - plan.stages[-1].kv_budget_bytes) / 1e9, 2) == 2.35
    assert round(plan.stages[-1].kv_budget_bytes / 1e9, 2) == 25.08


@pytest.mark.parametrize(
    ("context", "alone", "with_head"),
    [(8192, 5813, 5316), (32_768, 1453, 1329), (131_072, 363, 332), (262_144, 181, 166), (1 << 20, 45, 41)],
)
def test_requests_on_a_full_attention_wafer(context: int, alone: int, with_head: int) -> None:
    requests = planned("by-kind", "exact", context_tokens=context).requests
    assert (requests[-2], requests[-1]) == (alone, with_head)


@pytest.mark.parametrize(("state_type", "requests"), [("fp32", 769), ("bf16", 1488)])
def test_requests_on_a_wafer_of_two_linear_layers(state_type: str, requests: int) -> None:
    spec = msgspec.structs.replace(K3, state_type=state_type)
    found = make_plan(spec, WAFER, PlanOptions(placement="by-kind"))
    pair = next(i for i, stage in enumerate(found.plan.stages) if len(stage.layers) == 2)
    assert found.requests[pair] == requests


def test_bf16_kv_halves_the_room() -> None:
    spec = msgspec.structs.replace(K3, kv_type="bf16")
    assert make_plan(spec, WAFER, PlanOptions(placement="by-kind")).requests[-2] == 5813 // 2


def test_state_binds_at_short_contexts_and_kv_at_long_ones() -> None:
    """For one pair of linear-attention layers and one full-attention layer the crossover is near 62 K tokens."""

    def room(context: int) -> tuple[int, int]:
        found = planned("by-kind", "exact", context_tokens=context)
        return found.requests[2], found.requests[1]

    assert found_order(room(61_000)) == "state"
    assert found_order(room(63_000)) == "kv"


def found_order(room: tuple[int, int]) -> str:
    state, kv = room
    return "state" if state < kv else "kv"


def test_credits_and_network_floor() -> None:
    found = planned("by-kind", "nominal", microbatch=4)
    summary = plan_report(found)
    assert summary.credits == 59
    assert summary.knee < 59
    assert summary.network_floor_ns == 70 * 2_000
    assert plan_report(planned()).network_floor_ns == 46 * 2_000
    assert summary.published_in_flight == 59 * 4
    assert summary.trip_ns > sum(row.service_ns for row in summary.stages) + summary.network_floor_ns


def test_equal_layer_times_give_the_knee_47() -> None:
    """The 59-wafer route, equal layer times, no hops: L / T = 93 / 2."""
    plan = planned("by-kind", "nominal").plan
    costs = (Affine(base_ns=1000), Affine(base_ns=2000))
    visits = [msgspec.structs.replace(visit, cost=len(visit.layers) - 1) for visit in plan.visits]
    links = [msgspec.structs.replace(link, latency_ns=0, bytes_per_token=0) for link in plan.links]
    assert pipeline_timing(59, visits, links, costs, decode_totals(1, 1)).knee == 47


def test_links_carry_attention_residuals() -> None:
    plan = planned().plan
    assert len(plan.links) == 47
    assert plan.links[0].bytes_per_token == plan.links[-1].bytes_per_token == 4
    for link, visit in zip(plan.links[1:], plan.visits[1:], strict=False):
        before = visit.layers[0]
        assert link.bytes_per_token == (1 + -(-before // 12)) * 7168 * 2
    assert {link.latency_ns for link in plan.links} == {2_000}


def test_costs_are_shared() -> None:
    plan = planned("by-kind", "nominal").plan
    assert len(plan.costs) == 5  # dense + linear, two linear, one linear, full, full with the head
    assert all(visit.min_service_ns >= 1 for visit in plan.visits)


def test_explanations() -> None:
    text = " ".join(explain(K3, planned("by-kind", "nominal")))
    assert "69/2 -> 35, + 24 = 59." in text
    assert "59 + 11 = 70 visits" in text
    assert "consecutive" in " ".join(explain(K3, planned("by-kind", "exact", consecutive=True)))
    assert "stage-0 holds layers 0-2" in " ".join(explain(K3, planned("by-kind", "exact")))
    assert "at least 36 stages" in " ".join(explain(K3, planned()))
