"""Plans for GPUs: pipelines, replicas, tensor groups, what does not fit."""

import msgspec
import pytest

from stageline.catalog.loader import Catalog
from stageline.errors import DoesNotFit, UsageError
from stageline.plan.build import make_plan
from stageline.plan.check import check_plan
from stageline.plan.options import PlanOptions
from stageline.plan.report import plan_report, ranges

SHELF = Catalog()
H100 = msgspec.structs.replace(SHELF.device("h100-sxm").device, memory_bytes=80 * 10**9)  # a round number
LLAMA = SHELF.model("llama-3.1-70b").spec


def test_eight_stages_twice() -> None:
    found = make_plan(LLAMA, H100, PlanOptions(devices=8, replicas=2))
    summary = plan_report(found)
    assert (summary.devices, summary.visits, summary.replicas, summary.total_devices) == (8, 8, 2, 16)
    assert summary.total_requests == 2 * summary.requests
    assert found.plan.replicas == 2
    check_plan(found.plan, "plan")


def test_budgets_add_up() -> None:
    for stage in make_plan(LLAMA, H100, PlanOptions(devices=8)).plan.stages:
        assert stage.weight_bytes + stage.kv_budget_bytes == stage.memory_bytes == 72 * 10**9
        assert stage.kv_block_bytes == len(stage.layers) * 4096 * 16
        assert stage.state_bytes == 0


def test_fewest_devices_for_gpus() -> None:
    assert plan_report(make_plan(LLAMA, H100, PlanOptions())).devices == 2
    assert plan_report(make_plan(SHELF.model("qwen2.5-1.5b").spec, H100, PlanOptions())).devices == 1


def test_a_tied_head_is_stored_once_on_one_stage_and_twice_on_two() -> None:
    spec = SHELF.model("qwen2.5-1.5b").spec
    one, two = (plan_report(make_plan(spec, H100, PlanOptions(devices=n))).weight_bytes for n in (1, 2))
    assert one == spec.weight_bytes()
    assert two - one == spec.embedding_bytes()


def test_hops_use_the_node_and_then_the_network() -> None:
    plan = make_plan(LLAMA, H100, PlanOptions(devices=16)).plan
    rates = [link.bytes_per_s for link in plan.links]
    assert rates == [50 * 10**9] + [450 * 10**9] * 7 + [50 * 10**9] + [450 * 10**9] * 7 + [50 * 10**9]


def test_hop_flags_rule_all_links() -> None:
    options = PlanOptions(devices=4, hop_latency_ns=5, hop_bytes_per_s=7, hop_jitter_ns=3)
    for link in make_plan(LLAMA, H100, options).plan.links:
        assert (link.latency_ns, link.bytes_per_s, link.jitter_ns) == (5, 7, 3)


def test_tensor_groups() -> None:
    found = make_plan(LLAMA, H100, PlanOptions(devices=8, tensor_parallel=4))
    assert [stage.devices for stage in found.plan.stages] == [4, 4]
    assert plan_report(found).devices == 8
    assert found.plan.stages[0].memory_bytes == 4 * 72 * 10**9
    assert found.plan.stages[0].kv_block_bytes == 40 * 4096 * 16  # eight KV heads over four ranks: no copies
    wide = make_plan(LLAMA, H100, PlanOptions(devices=16, tensor_parallel=16))
    assert wide.plan.stages[0].kv_block_bytes == 2 * 80 * 4096 * 16  # sixteen ranks keep every head twice


def test_the_microbatch_fills_the_pipeline_within_its_room() -> None:
    found = make_plan(LLAMA, H100, PlanOptions(devices=8))
    microbatch, stages = found.plan.defaults.microbatch, len(found.plan.stages)
    assert stages * (microbatch - 1) < min(found.requests) <= stages * microbatch


def test_what_was_asked_for_is_kept() -> None:
    found = make_plan(LLAMA, H100, PlanOptions(devices=8, microbatch=3, credits=5, batched_tokens=100, block_tokens=32))
    assert (found.plan.defaults.microbatch, found.plan.defaults.credits) == (3, 5)
    assert (found.plan.defaults.batched_tokens, found.plan.block_tokens) == (100, 32)


def test_a_started_block_counts_whole() -> None:
    found = make_plan(LLAMA, H100, PlanOptions(devices=8, context_tokens=17))
    assert found.memory.request_bytes([0]) == 2 * 16 * 4096


def test_the_trip_adds_services_latencies_and_bytes() -> None:
    asked = PlanOptions(devices=4, microbatch=4, hop_latency_ns=1_000, hop_bytes_per_s=10**9, hop_jitter_ns=20)
    speed = make_plan(LLAMA, H100, asked).timing
    wires = 3 * 4 * 8192 * 2 + 2 * 4 * 4  # ns at 1 GB/s: three boundaries, tokens in and out
    assert speed.trip_ns == sum(speed.stage_ns) + 5 * (1_000 + 10) + wires
    assert speed.busiest_ns == max(speed.stage_ns)
    slow = msgspec.structs.replace(asked, hop_bytes_per_s=10**6)
    assert make_plan(LLAMA, H100, slow).timing.busiest_ns == 4 * 8192 * 2 * 1_000  # a link can be the bottleneck


def test_too_few_devices() -> None:
    with pytest.raises(DoesNotFit) as error:
        make_plan(LLAMA, H100, PlanOptions(devices=1))
    need = LLAMA.weight_bytes() + 327_680 * 8192
    assert f"{need - 72 * 10**9:,} bytes short" in str(error.value)
    assert "--devices 2" in str(error.value)
    assert "--weights int4" in str(error.value)
    assert error.value.exit_code == 4


def test_every_stated_change_fits() -> None:
    assert make_plan(LLAMA, H100, PlanOptions(devices=2)).plan.stages
    assert make_plan(LLAMA.requantised("int4"), H100, PlanOptions(devices=1)).plan.stages


def test_a_layer_that_fits_no_device() -> None:
    with pytest.raises(DoesNotFit, match="layer 0 of kimi-k3 with the embedding"):
        make_plan(SHELF.model("kimi-k3").spec, SHELF.device("groq-lpu").device, PlanOptions())
    lpu = SHELF.device("groq-lpu").device
    with pytest.raises(DoesNotFit, match="--tensor-parallel-size 32"):
        make_plan(LLAMA, lpu, PlanOptions(context_tokens=16))


def test_too_many_requests_say_how_many_would_fit() -> None:
    with pytest.raises(DoesNotFit, match=r"smallest change: --concurrency \d+") as error:
        make_plan(LLAMA, H100, PlanOptions(concurrency=10**6))
    most = int(str(error.value).rsplit("--concurrency ", 1)[1])
    assert make_plan(LLAMA, H100, PlanOptions(concurrency=most)).requests
    with pytest.raises(DoesNotFit):
        make_plan(LLAMA, H100, PlanOptions(concurrency=most + 1))


def test_room_that_was_asked_for_costs_devices() -> None:
    counts = [plan_report(make_plan(LLAMA, H100, PlanOptions(concurrency=n))).devices for n in (1, 64, 256)]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (PlanOptions(devices=81), "--replicas"),
        (PlanOptions(devices=7, tensor_parallel=2), "multiple"),
        (PlanOptions(devices=80, placement="by-kind"), "by-kind"),
    ],
)
def test_contradictions(options: PlanOptions, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_plan(LLAMA, H100, options)


def test_layer_ranges() -> None:
    assert ranges((0, 1, 2, 4, 7, 8)) == "0-2, 4, 7-8"
    assert ranges(()) == ""
