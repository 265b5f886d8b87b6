"""The order of the axes: the planner gives scale-up links to the axes where they save the most time."""

from collections import Counter
from collections.abc import Sequence
from itertools import permutations, product

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stageline.catalog.loader import Catalog
from stageline.cost.service import compile_cost
from stageline.cost.topology import ranks_in_domain
from stageline.cost.totals import BatchTotals
from stageline.errors import UsageError
from stageline.hardware.device import Device, Overhead, Peak, Share, on_topology
from stageline.hardware.networks import MeasuredCollective, Network, ScaleUp
from stageline.model.attention import Gqa
from stageline.model.ffn import Dense, Moe
from stageline.model.formats import WeightFormats
from stageline.model.spec import Layer, ModelSpec
from stageline.plan.axes import prefill_totals, strides_of
from stageline.plan.build import make_plan
from stageline.plan.explain import explain
from stageline.plan.options import AXES, Axis, PlanOptions
from stageline.plan.report import plan_report
from stageline.plan.schema import Plan
from stageline.plan.timing import decode_totals

SHELF = Catalog()
LLAMA, H100 = SHELF.model("llama-3.1-70b").spec, msgspec.structs.replace(SHELF.device("h100-sxm").device, costs=None)


def small_model(kv_heads: int, moe: bool = False) -> ModelSpec:
    """Twelve layers, 128 wide."""
    attention = Gqa(heads=16, kv_heads=kv_heads, head_dim=64)
    ffn = Moe(experts=16, top_k=2, width=64) if moe else Dense(width=256)
    return ModelSpec(
        name="m", hidden=128, vocab=1000, layers=(Layer(attention, ffn, WeightFormats()),) * 12, formats=WeightFormats()
    )


def cluster(domain: int, slow_bytes_per_s: int, latency_ns: int = 500, flops: int = 10**12) -> Device:
    """Devices of which `domain` share a link of 1 GB/s."""
    return Device(
        name="d",
        title="D",
        kind="gpu",
        memory_bytes=10**9,
        bandwidth_bytes_per_s=10**11,
        peak_flops=Peak(bf16=flops),
        share=Share(flops=0.6, bandwidth=0.8, memory=0.9),
        overhead=Overhead(),
        scale_up=ScaleUp(bytes_per_s=10**9, latency_ns=50, devices=domain),
        scale_out=Network(bytes_per_s=slow_bytes_per_s, latency_ns=latency_ns),
    )


def trip_ns(plan: Plan, loads: Sequence[BatchTotals]) -> int:
    """The sum of a trip, from the plan file alone."""
    models = [compile_cost(entry) for entry in plan.costs]
    total = 0
    for load in loads:
        total += sum(models[visit.cost].service_ns(load) for visit in plan.visits)
        total += sum(x.latency_ns - -load.tokens * x.bytes_per_token * 10**9 // x.bytes_per_s for x in plan.links)
    return total


def loads_of(plan: Plan, asked: PlanOptions) -> list[BatchTotals]:
    context = int(plan.info["context_tokens"])
    return [decode_totals(plan.defaults.microbatch, context), prefill_totals(asked.batched_tokens, context)]


shapes = st.sampled_from(
    [(2, 1, 2, 3, 1), (4, 1, 4, 2, 1), (2, 8, 1, 2, 1), (1, 4, 1, 3, 1), (2, 1, 4, 1, 3), (4, 4, 1, 4, 1)]
)


@settings(max_examples=25, deadline=None)
@given(shapes, st.sampled_from([2, 4, 8]), st.sampled_from([10**6, 10**8, 10**10]), st.sampled_from([2, 16]))
def test_no_order_of_the_axes_is_cheaper(
    shape: tuple[int, int, int, int, int], domain: int, slow: int, kv_heads: int
) -> None:
    """Brute force over all orders of the axes, each requested explicitly; trips are summed from the plan file."""
    tp, ep, cp, pp, dp = shape
    spec, device = small_model(kv_heads, moe=ep > 1), cluster(domain, slow)
    wide = max(tp, ep) * cp
    asked = PlanOptions(
        devices=wide * pp, replicas=dp, tensor_parallel=tp, expert_parallel=ep, context_parallel=cp, microbatch=8
    )
    chosen = make_plan(spec, device, asked)
    loads = loads_of(chosen.plan, asked)
    used = [axis for axis, ranks in zip(AXES, (tp, ep // tp if ep > 1 else 1, cp, pp, dp), strict=True) if ranks > 1]
    costs = {
        order: trip_ns(make_plan(spec, device, msgspec.structs.replace(asked, axes=order)).plan, loads)
        for order in permutations(used)
    }
    assert trip_ns(chosen.plan, loads) == min(costs.values())
    if costs[tuple(used)] == min(costs.values()):
        assert "axes" not in chosen.plan.info, "the usual order wins ties"


def positions(order: Sequence[Axis], sizes: dict[Axis, int]) -> dict[tuple[int, ...], int]:
    """The device of every coordinate (in the order of AXES), by counting: the innermost axis changes fastest."""
    outwards = [*order]
    return {
        tuple(dict(zip(reversed(outwards), at, strict=True))[a] for a in AXES): device
        for device, at in enumerate(product(*(range(sizes[a]) for a in reversed(outwards))))
    }


@given(st.permutations(AXES), st.lists(st.integers(1, 3), min_size=5, max_size=5), st.integers(1, 9))
def test_strides_are_those_of_counting(order: list[Axis], ranks: list[int], domain: int) -> None:
    sizes = dict(zip(AXES, ranks, strict=True))
    strides, where = strides_of(order, sizes), positions(order, sizes)
    assert all(sum(x * s for x, s in zip(at, strides, strict=True)) == device for at, device in where.items())
    # The worst tensor group of the first stage and replica, found by trying every one.
    lists = [[where[t, e, 0, 0, 0] for t in range(sizes["tp"])] for e in range(sizes["ep"])]
    most = min(max(Counter(d // domain for d in devices).values()) for devices in lists)
    tensor = range(0, sizes["tp"] * strides.tp, strides.tp)
    assert ranks_in_domain(domain, tensor, range(0, sizes["ep"] * strides.ep, strides.ep)) == most


def test_tensor_ranks_stay_in_the_node_and_say_what_leaving_it_costs() -> None:
    found = make_plan(LLAMA, H100, PlanOptions(devices=16, tensor_parallel=4, replicas=2))
    assert [row.axis for row in found.axes] == ["tp", "pp", "dp"]
    assert [row.link for row in found.axes] == ["scale-up", "both", "scale-out"]
    tensor = found.axes[0]
    assert tensor.elsewhere_ns is not None and tensor.elsewhere_ns > tensor.trip_ns / 2
    assert plan_report(found).axes == found.axes
    assert any("tp: 4 ranks, 1 device apart, on the scale-up link." in line for line in explain(LLAMA, found))


def test_the_chattier_axis_gets_the_fast_link() -> None:
    """A ring of all heads' KV over a long context moves more than all-reduces of 128 elements; with two heads, less."""
    asked = PlanOptions(
        devices=16, tensor_parallel=4, context_parallel=4, microbatch=1, context_tokens=100_000, batched_tokens=8192
    )
    device = cluster(4, 10**8, latency_ns=50, flops=10**15)
    many, few = (make_plan(small_model(heads), device, asked) for heads in (16, 1))
    assert [row.axis for row in many.axes] == ["cp", "tp"] and many.plan.info["axes"] == "cp,tp"
    slow = msgspec.structs.replace(asked, context_tokens=64, batched_tokens=64)
    assert [row.axis for row in make_plan(small_model(1), device, slow).axes] == ["tp", "cp"]
    assert few.plan != many.plan
    ring, tensor = many.axes
    assert (ring.link, tensor.link) == ("scale-up", "scale-out")
    assert ring.elsewhere_ns is not None and ring.elsewhere_ns > 0
    assert tensor.elsewhere_ns is not None and tensor.elsewhere_ns > 0, "the two can't both be inside"


def test_links_alike_make_no_difference() -> None:
    """With equal links the order is the default, and the other link costs nothing."""
    device = cluster(4, 10**9, latency_ns=50)
    found = make_plan(small_model(4), device, PlanOptions(devices=16, tensor_parallel=4, context_parallel=2))
    assert [row.axis for row in found.axes] == ["tp", "cp", "pp"]
    assert all(row.elsewhere_ns == 0 for row in found.axes)


def test_a_larger_domain_never_costs() -> None:
    asked = PlanOptions(devices=16, tensor_parallel=4, context_parallel=2, microbatch=4)
    trips = [make_plan(small_model(4), cluster(n, 10**8), asked).axes[0].trip_ns for n in (1, 2, 4, 8, 16)]
    assert trips == sorted(trips, reverse=True) and trips[0] > trips[-1]


def test_other_nodes_drop_what_was_measured_on_their_links() -> None:
    assert on_topology(H100) is H100
    small = on_topology(H100, devices=4)
    assert small.scale_up is not None and small.scale_up.devices == 4
    assert [row.devices for row in small.all_reduce] == [2, 4] and small.all_to_all == ()
    slow = on_topology(H100, scale_out=SHELF.link("10gbe").network)
    assert [row.devices for row in slow.all_to_all] == [8] and slow.all_reduce == H100.all_reduce
    fast = on_topology(H100, scale_up=SHELF.link("10gbe").network)
    assert fast.all_reduce == () and fast.one_shot_ns == 0 and [r.devices for r in fast.all_to_all][:1] == [16]
    assert on_topology(H100, devices=1).scale_up is None


def test_a_row_measured_inside_a_domain_serves_no_scattered_group() -> None:
    device = msgspec.structs.replace(
        cluster(4, 10**8), all_reduce=(MeasuredCollective(devices=2, latency_ns=1, bytes_per_s=10**12),)
    )
    asked = PlanOptions(devices=8, tensor_parallel=2, context_parallel=4, microbatch=4)
    both = [msgspec.structs.replace(asked, axes=axes) for axes in (("tp", "cp"), ("cp", "tp"))]
    inside, scattered = (trip_ns(make_plan(small_model(4), device, o).plan, [decode_totals(4, 100)]) for o in both)
    assert scattered > inside + 12 * 2 * 900  # an all-reduce per half layer, two steps of 500 ns against 1 ns


@pytest.mark.parametrize(("devices", "link"), [(4, False), (None, True)])
def test_a_domain_needs_both_a_link_and_a_size(devices: int | None, link: bool) -> None:
    wafer, network = SHELF.device("wse-3t").device, SHELF.link("10gbe").network
    with pytest.raises(UsageError, match="--devices-per-node"):
        on_topology(wafer, devices=devices, scale_up=network if link else None)
    both = on_topology(wafer, devices=4, scale_up=network).scale_up
    assert both is not None and both.devices == 4
