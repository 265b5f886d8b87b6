"""Effects that practitioners know follow from the cost model alone, as the examples of docs/planning.md say."""

import msgspec

from stageline.api.planning import plan_model
from stageline.api.running import run
from stageline.catalog.loader import Catalog
from stageline.cost.service import compile_cost
from stageline.cost.totals import BatchTotals
from stageline.plan.build import Planned, make_plan
from stageline.plan.options import PlanOptions
from stageline.plan.timing import decode_totals, pipeline_timing

SHELF = Catalog()
H100 = SHELF.device("h100-sxm").device


def planned(model: str, device: str = "h100-sxm", **options: object) -> Planned:
    asked = PlanOptions(**options)  # type: ignore[arg-type]
    return make_plan(SHELF.model(model).spec, SHELF.device(device).device, asked)


def trip_ns(found: Planned, sequences: int = 1) -> int:
    """One token's trip in a microbatch of this many sequences."""
    plan = found.plan
    return pipeline_timing(
        len(plan.stages), plan.visits, plan.links, plan.costs, decode_totals(sequences, 1024)
    ).trip_ns


def prefill_ns(found: Planned, tokens: int, prompts: int = 1) -> int:
    """Time of all stages for so many whole prompts in one batch."""
    pairs, new = tokens * (tokens + 1) // 2, prompts * tokens
    load = BatchTotals(
        prefill_sequences=prompts, prefill_tokens=new, prefill_kv_tokens=new, prefill_pairs=prompts * pairs
    )
    return sum(compile_cost(found.plan.costs[visit.cost]).service_ns(load) for visit in found.plan.visits)


def test_tensor_ranks_win_latency_inside_a_node_and_lose_across_slow_links() -> None:
    inside = {n: trip_ns(planned("llama-3.1-405b", tensor_parallel=n, devices=32)) for n in (1, 2, 4, 8)}
    assert inside[8] < inside[4] < inside[2] < inside[1]
    model, shape = SHELF.model("llama-3.1-405b").spec, PlanOptions(tensor_parallel=16, devices=32)
    across = trip_ns(make_plan(model, msgspec.structs.replace(H100, scale_out=SHELF.link("10gbe").network), shape))
    assert across > 1.2 * inside[8]


def test_stages_win_capacity_and_need_requests_in_flight() -> None:
    """Eight devices hold more than four and take as long per token; only more microbatches in flight raise the rate."""
    four, eight = (planned("llama-3.1-70b", devices=n) for n in (4, 8))
    assert min(eight.requests) > min(four.requests)
    assert trip_ns(eight) > 0.95 * trip_ns(four)
    assert eight.timing.busiest_ns < 0.6 * four.timing.busiest_ns
    assert eight.timing.knee > four.timing.knee


def test_small_microbatches_serve_latency_and_large_ones_throughput() -> None:
    found = planned("llama-3.1-70b", devices=8)
    small, large = trip_ns(found, 1), trip_ns(found, 64)
    assert small < large < 64 * small


def test_context_ranks_pay_only_where_attention_dominates() -> None:
    """Compared with replicas, which double throughput: the gain per device crosses 1 as prompts grow."""
    one, two = (
        planned("llama-3.1-405b", tensor_parallel=8, context_parallel=n, devices=16 * n, context_tokens=1024)
        for n in (1, 2)
    )
    gain = {tokens: prefill_ns(one, tokens) / prefill_ns(two, tokens) for tokens in (128, 1024, 128_000)}
    assert gain[128] < gain[1024] < gain[128_000] <= 2.0
    assert gain[128] < 1.2 and gain[128_000] > 1.8
    assert trip_ns(two) > trip_ns(one)


def test_expert_imbalance_makes_stragglers() -> None:
    """One prompt on every rank: ranks step together, so a prompt on one of 32 would be almost attention alone."""
    shape = {"expert_parallel": 32, "context_tokens": 4096}
    even, skewed = (planned("deepseek-v3", "h800", expert_imbalance=a, **shape) for a in (0.0, 1.2))
    assert prefill_ns(skewed, 4096, prompts=32) > 1.05 * prefill_ns(even, 4096, prompts=32)


def test_ordinary_networks_hold_a_large_model_and_answer_slowly() -> None:
    """70B fits on consumer cards; a tensor group over 10 GbE waits in every layer, a pipeline hardly at all."""
    network = {"hop_latency_ns": 40_000, "hop_bytes_per_s": 1_250_000_000}
    stages = planned("llama-3.1-70b", "rtx-4090", **network)
    assert min(stages.requests) >= 1
    slow = msgspec.structs.replace(H100, scale_up=None, all_reduce=(), one_shot_ns=0, costs=None)
    slow = msgspec.structs.replace(slow, scale_out=SHELF.link("10gbe").network)
    spec = SHELF.model("llama-3.1-70b").spec
    group = make_plan(spec, slow, PlanOptions(tensor_parallel=8))
    node = planned("llama-3.1-70b", tensor_parallel=8)
    assert trip_ns(group) > 3 * trip_ns(node)
    assert trip_ns(stages) > 5 * trip_ns(node)


def test_hops_of_the_wafer_pipeline_hardly_matter_until_they_do() -> None:
    rule = {"placement": "by-kind", "layer_bytes": "nominal"}
    near, far = (planned("kimi-k3", "wse-3t", hop_latency_ns=ns, **rule) for ns in (2_000, 100_000))
    assert near.timing.network_ns == 140_000
    assert near.timing.network_ns < 0.1 * near.timing.trip_ns
    assert far.timing.network_ns > 0.5 * far.timing.trip_ns


def test_a_dense_model_on_one_device_against_experts_over_many() -> None:
    """Per token, a dense 27B model on one device reads more than the 3B active parameters of a 30B model."""
    dense = planned("qwen3.6-27b", context_tokens=4096)
    sparse = planned("qwen3-30b-a3b", context_tokens=4096)
    assert len(dense.plan.stages) == len(sparse.plan.stages) == 1
    assert trip_ns(dense) > 2 * trip_ns(sparse)
    assert trip_ns(sparse, 128) / trip_ns(sparse) > trip_ns(dense, 128) / trip_ns(dense)  # more experts to read


def test_tensor_ranks_across_two_nodes_serve_about_what_a_pipeline_of_nodes_does() -> None:
    """405B on 16 H100, 64 users, 1,024 tokens in and 128 out: measured about equal (8 rails of 50 GB/s); within 1.5."""
    load, rates = "closed:users=64,requests=256,input=1024,output=128", []
    for tensor in (16, 8):
        planned_on = plan_model("llama-3.1-405b", "h100-sxm", tensor_parallel=tensor, devices=16)
        rates.append(run(planned_on, load).summary.output_tokens_per_s)
    assert max(rates) < 1.5 * min(rates)
