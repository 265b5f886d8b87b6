"""Stages on different devices: each with its own memory, cost, node and link; cut by hand or by every device's time."""

from itertools import combinations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stageline.catalog.loader import Catalog
from stageline.errors import BadInput, DoesNotFit, StagelineError, UsageError
from stageline.hardware.device import Device
from stageline.plan.build import Planned, make_plan
from stageline.plan.options import PlanOptions
from stageline.plan.partition import Part, balanced, balanced_over
from stageline.plan.report import plan_report
from stageline.plan.stage_hardware import parse_stage_devices

SHELF = Catalog()
LLAMA = SHELF.model("llama-3.1-8b").spec
H100, L40S = SHELF.device("h100-sxm").device, SHELF.device("l40s").device


def planned(*devices: Device, **options: object) -> Planned:
    asked = PlanOptions(devices_by_stage=devices, devices=len(devices), **options)  # type: ignore[arg-type]
    return make_plan(LLAMA, devices[0], asked)


def test_every_stage_has_the_memory_of_its_device() -> None:
    stages = planned(H100, L40S, layer_partition=(20, 12)).plan.stages
    assert [s.device for s in stages] == ["h100-sxm", "l40s"]
    assert [s.memory_bytes for s in stages] == [H100.usable_bytes(), L40S.usable_bytes()]
    assert [len(s.layers) for s in stages] == [20, 12]
    work = [s.work for s in stages]
    assert [w.bytes_per_s for w in work if w] == [H100.bandwidth_bytes_per_s, L40S.bandwidth_bytes_per_s]


def test_every_stage_has_the_cost_of_its_device() -> None:
    mixed = planned(H100, L40S, layer_partition=(16, 16), microbatch=8)
    fast, slow = (
        make_plan(LLAMA, d, PlanOptions(devices=2, microbatch=8, layer_partition=(16, 16))) for d in (H100, L40S)
    )
    assert mixed.timing.stage_ns == (fast.timing.stage_ns[0], slow.timing.stage_ns[1])


def test_the_automatic_cut_gives_the_faster_device_more_layers() -> None:
    for devices in ((H100, L40S), (L40S, H100)):
        found = planned(*devices, microbatch=8)
        counts = dict(zip([d.name for d in devices], [len(s.layers) for s in found.plan.stages], strict=True))
        assert counts["h100-sxm"] > 2 * counts["l40s"]
        assert max(found.timing.stage_ns) < max(
            planned(*devices, layer_partition=(16, 16), microbatch=8).timing.stage_ns
        )


def test_the_automatic_cut_respects_the_memory_of_every_device() -> None:
    small = msgspec.structs.replace(H100, name="small", memory_bytes=8 * 10**9)  # as fast, with room for few layers
    found = planned(small, H100, microbatch=8)
    assert len(found.plan.stages[0].layers) < 16
    assert all(s.weight_bytes + s.kv_budget_bytes <= s.memory_bytes for s in found.plan.stages)


def test_stages_of_one_kind_are_the_plan_without_the_flag() -> None:
    found = planned(H100, H100).plan
    plain = make_plan(LLAMA, H100, PlanOptions(devices=2)).plan
    assert found.info["stage_devices"] == "h100-sxm,h100-sxm"
    same = {k: v for k, v in found.info.items() if k != "stage_devices"}
    assert msgspec.structs.replace(found, info=same) == plain


def test_devices_of_two_kinds_are_joined_by_the_slower_network_across_nodes() -> None:
    links = planned(H100, H100, L40S, layer_partition=(12, 12, 8)).plan.links
    near, far = links[1], links[2]
    assert H100.scale_up is not None and near.bytes_per_s == H100.scale_up.bytes_per_s
    assert far.bytes_per_s == min(H100.scale_out.bytes_per_s, L40S.scale_out.bytes_per_s)
    assert far.latency_ns == max(H100.scale_out.latency_ns, L40S.scale_out.latency_ns)
    assert links[3].latency_ns == L40S.scale_out.latency_ns


def test_the_report_names_the_devices() -> None:
    report = plan_report(planned(H100, L40S, layer_partition=(20, 12)))
    assert report.device == "h100-sxm + l40s" and [row.hardware for row in report.stages] == ["h100-sxm", "l40s"]
    sizes = [row.device.weight_bytes + row.device.kv_bytes + row.device.reserve_bytes for row in report.stages]
    assert sizes == pytest.approx([H100.memory_bytes, L40S.memory_bytes], abs=2)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"placement": "by-kind"}, UsageError, "--stage-devices can't be combined with --placement by-kind"),
        ({"devices": 3}, BadInput, "2 stages of 1 device.*but the replica has 3"),
        ({"layer_partition": (2, 30)}, DoesNotFit, "stage 1 with layers 2 to 31 .* its small have"),
        ({"concurrency": 10_000}, DoesNotFit, "does not fit 2 stages of h100-sxm . small"),
    ],
)
def test_what_cannot_be_planned(options: dict[str, object], error: type[StagelineError], says: str) -> None:
    small = msgspec.structs.replace(L40S, name="small", memory_bytes=8 * 10**9)
    asked = PlanOptions(devices_by_stage=(H100, small), **({"devices": 2} | options))  # type: ignore[arg-type]
    with pytest.raises(error, match=says):
        make_plan(LLAMA, H100, asked)


def test_more_stages_than_layers_say_so() -> None:
    with pytest.raises(BadInput, match=r"33 stages, but the model has 32 layers.*'h100-sxm:33'.*at most 32"):
        make_plan(LLAMA, H100, PlanOptions(devices_by_stage=(H100,) * 33))


def test_texts() -> None:
    assert parse_stage_devices("a,b") == ("a", "b")
    assert parse_stage_devices("a:2, b:1") == ("a", "a", "b")
    for text in ("a:0", "a:x", ":2", "a,,b", "", "a:99999999"):
        with pytest.raises(BadInput, match="write h100-sxm,l40s or h100-sxm:16,l40s:32"):
            parse_stage_devices(text)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=3, max_size=7), st.integers(1, 6))
def test_the_cut_is_the_best_of_all(times: list[tuple[int, int]], room: int) -> None:
    """Two devices with times of their own; the second holds at most `room` layers."""
    one, two = ([t[i] for t in times] for i in (0, 1))
    parts = [Part(one, lambda a, b: True), Part(two, lambda a, b: b - a <= room), Part(one, lambda a, b: True)]
    found = balanced_over(parts)

    def value(cuts: list[tuple[int, int]]) -> tuple[int, int]:
        loads = [sum(part.times[a:b]) for part, (a, b) in zip(parts, cuts, strict=True)]
        return max(loads), sum(x * x for x in loads)

    every = [[(0, a), (a, b), (b, len(times))] for a, b in combinations(range(1, len(times)), 2) if b - a <= room]
    assert found is not None and value(found) == min(map(value, every))


def test_equal_stages_are_cut_as_before() -> None:
    times = [3, 1, 4, 1, 5, 9, 2, 6]
    assert balanced(times, 3, lambda a, b: True) == balanced_over([Part(times, lambda a, b: True)] * 3)
