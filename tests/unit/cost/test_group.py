"""Groups of devices: laws and values of tensor, expert, context and attention ranks."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stageline.catalog.loader import Catalog
from stageline.cost.collective import all_to_all
from stageline.cost.entries import Roofline
from stageline.cost.group import Group, layer_group_bytes, local_params
from stageline.cost.imbalance import ENTRIES, imbalance_factors
from stageline.cost.roofline_entry import roofline_entry
from stageline.cost.service import compile_cost, min_service_ns
from stageline.cost.tables import distinct_experts
from stageline.cost.totals import BatchTotals
from stageline.hardware.device import Device
from stageline.plan.build import make_plan
from stageline.plan.check import check_plan
from stageline.plan.options import PlanOptions

SHELF = Catalog()
H100 = msgspec.structs.replace(SHELF.device("h100-sxm").device, costs=None)
H800 = SHELF.device("h800").device
LLAMA, DEEPSEEK = SHELF.model("llama-3.1-70b").spec, SHELF.model("deepseek-v3").spec
KIMI = SHELF.model("kimi-k3").spec


def decode(sequences: int, kv: int = 4096) -> BatchTotals:
    pairs = sequences * kv
    return BatchTotals(decode_sequences=sequences, decode_tokens=sequences, decode_kv_tokens=pairs, decode_pairs=pairs)


def prefill(tokens: int, cached: int = 0) -> BatchTotals:
    pairs = tokens * cached + tokens * (tokens + 1) // 2
    return BatchTotals(
        prefill_sequences=1, prefill_tokens=tokens, prefill_kv_tokens=cached + tokens, prefill_pairs=pairs
    )


def free_links(device: Device) -> Device:
    """The same device on links that take no time."""
    fast = {"bytes_per_s": 1 << 60, "latency_ns": 0}
    assert device.scale_up
    return msgspec.structs.replace(
        device,
        scale_up=msgspec.structs.replace(device.scale_up, **fast),
        scale_out=msgspec.structs.replace(device.scale_out, **fast),
        all_reduce=(),
        all_to_all=(),
        one_shot_ns=0,
    )


@pytest.mark.parametrize("spec", [LLAMA, DEEPSEEK, KIMI], ids=lambda spec: spec.name)
def test_groups_of_one_are_no_groups(spec: object) -> None:
    """TP=1, EP=1 and CP=1 change neither bytes nor costs, and add no communication."""
    assert isinstance(spec, type(LLAMA))
    entry = roofline_entry(spec, range(5), H100)
    assert entry == roofline_entry(spec, range(5), H100, Group(tensor=1, context=1, attention_replicas=1, experts=True))
    assert all(group.collectives == () for group in entry.groups)
    assert layer_group_bytes(spec, spec.layers[3], Group()) == spec.layer_bytes(3)


@settings(deadline=None, max_examples=30)
@given(st.sampled_from([2, 4, 8]), st.integers(1, 256))
def test_on_free_links_more_tensor_ranks_are_never_slower(ranks: int, sequences: int) -> None:
    device = free_links(H100)
    for spec in (LLAMA, DEEPSEEK):
        few, many = (roofline_entry(spec, range(8), device, Group(tensor=n)) for n in (ranks // 2, ranks))
        assert compile_cost(many).service_ns(decode(sequences)) <= compile_cost(few).service_ns(decode(sequences))


def test_spread_experts_are_those_of_the_rank_that_reads_most() -> None:
    """(N / EP) (1 - (1 - k / N)^B) experts on a rank, in closed form: shards of all cost that, whole ones more."""
    one = DEEPSEEK.layers[5].ffn.expert_params(DEEPSEEK.hidden)  # type: ignore[union-attr]
    spread = roofline_entry(DEEPSEEK, [5], H100, Group(tensor=8, experts=True)).groups[0].experts
    sharded = roofline_entry(DEEPSEEK, [5], H100, Group(tensor=8)).groups[0].experts
    assert spread and sharded
    assert spread == msgspec.structs.replace(sharded, spread=8)
    rate = H100.bandwidth_bytes_per_s * H100.share.bandwidth
    batch = 64
    read = 256 / 8 * (1 - (1 - 8 / 256) ** batch) * one * (1 + 4 / (128 * 128)) / rate * 1e9
    distinct = 256 * (1 - (1 - 8 / 256) ** batch)
    assert spread.expert_ns * distinct == pytest.approx(read)
    assert distinct < distinct_experts(256, 8, spread=8)[batch] < 256


def test_experts_over_the_tensor_ranks_alone_need_no_exchange() -> None:
    """Every tensor rank has all tokens, so an all-reduce adds the parts, as without expert parallelism."""
    sharded, spread = (roofline_entry(DEEPSEEK, [5], H100, Group(tensor=8, experts=e)) for e in (False, True))
    assert spread.groups[0].collectives == sharded.groups[0].collectives
    replicas = roofline_entry(DEEPSEEK, [5], H100, Group(tensor=4, attention_replicas=2, experts=True))
    assert len(replicas.groups[0].collectives) == len(spread.groups[0].collectives) + 2


def test_what_every_rank_needs_is_copied() -> None:
    layer = LLAMA.layers[0]
    qkv = next(t for t in layer.tensors(LLAMA.hidden) if t.name == "qkv")
    assert local_params(layer, qkv, 8, LLAMA.hidden) == qkv.params / 8
    assert local_params(layer, qkv, 16, LLAMA.hidden) == LLAMA.hidden * 128 * (64 / 16 + 2)  # eight KV heads, 16 ranks
    norms = 2 * LLAMA.hidden * 2
    assert layer_group_bytes(LLAMA, layer, Group(tensor=8)) == LLAMA.layer_bytes(0) + 7 * norms
    assert layer_group_bytes(LLAMA, layer, Group(tensor=8, context=2)) == 2 * (LLAMA.layer_bytes(0) + 7 * norms)


def test_replicas_of_attention_keep_experts_once() -> None:
    layer = DEEPSEEK.layers[5]
    routed = next(t for t in layer.tensors(DEEPSEEK.hidden) if t.name == "routed")
    one, wide = layer_group_bytes(DEEPSEEK, layer, Group()), Group(attention_replicas=32, experts=True)
    experts = routed.params * (1 + 4 / (128 * 128))
    assert layer_group_bytes(DEEPSEEK, layer, wide) == pytest.approx(experts + 32 * (one - experts), rel=1e-6)


def test_latent_experts_halve_what_is_sent() -> None:
    latent = roofline_entry(KIMI, [5], H100, Group(attention_replicas=8, experts=True)).groups[0].collectives
    plain_layer = msgspec.structs.replace(
        KIMI.layers[5], ffn=msgspec.structs.replace(KIMI.layers[5].ffn, latent_width=KIMI.hidden)
    )
    plain_spec = msgspec.structs.replace(KIMI, layers=(plain_layer,))
    plain = roofline_entry(plain_spec, [0], H100, Group(attention_replicas=8, experts=True)).groups[0].collectives
    dispatch, combine = (way[0].token_ns for way in (latent[0].ways, latent[1].ways))
    assert combine == pytest.approx(2 * dispatch)
    assert plain[0].ways[0].token_ns == pytest.approx(2 * dispatch)


@pytest.mark.parametrize(
    ("ranks", "dispatch_us", "combine_us"),
    [(8, 77, 114), (16, 118, 195), (32, 155, 273), (64, 173, 314), (128, 192, 369), (256, 194, 360)],
)
def test_deepep_low_latency(ranks: int, dispatch_us: int, combine_us: int) -> None:
    """128 tokens per rank, 7168 wide, eight copies."""
    direct = all_to_all(H800, ranks, 8)[0]
    for width, published in ((1, dispatch_us), (2, combine_us)):
        assert (direct.latency_ns + direct.ns_per_byte * 128 * 8 * 7168 * width) / 1e3 == pytest.approx(
            published, rel=0.01
        )


def test_large_exchanges_go_node_by_node() -> None:
    direct, by_node = all_to_all(H800, 32, 8)
    assert direct.latency_ns < by_node.latency_ns
    assert by_node.ns_per_byte == pytest.approx(3 / 8 / 50 + 1 / 200)


def test_imbalance_is_ascending_at_least_one_and_grows_with_the_exponent() -> None:
    assert imbalance_factors(256, 8, 32, 0.0) == ()
    mild, steep = (imbalance_factors(256, 8, 32, alpha) for alpha in (0.3, 1.1))
    assert len(mild) == ENTRIES
    assert list(steep) == sorted(steep)
    assert 1 <= mild[0] < mild[-1] < steep[0]


def test_the_most_loaded_rank_decides_by_draw() -> None:
    group = Group(attention_replicas=32, experts=True)
    entry = roofline_entry(DEEPSEEK, range(4, 10), free_links(H800), group, alpha=1.1)
    model, even = compile_cost(entry), compile_cost(roofline_entry(DEEPSEEK, range(4, 10), free_links(H800), group))
    load = prefill(65_536)
    times = [model.service_ns(load, draw) for draw in range(ENTRIES)]
    assert model.uses_draw and not even.uses_draw
    assert times == sorted(times)
    assert even.service_ns(load) < times[0] < times[-1]
    assert min_service_ns(entry) <= min(times)


def test_overlap_hides_collectives_but_pays_weights_twice() -> None:
    plain, overlapped = (
        compile_cost(
            roofline_entry(DEEPSEEK, range(4, 10), H800, Group(attention_replicas=32, experts=True, overlap=o))
        )
        for o in (False, True)
    )
    tokens, prompt = 32 * 16_384, 4096
    load = BatchTotals(
        prefill_sequences=128, prefill_tokens=tokens, prefill_kv_tokens=tokens, prefill_pairs=tokens * prompt // 2
    )
    assert overlapped.service_ns(load) < 0.75 * plain.service_ns(load)
    assert overlapped.service_ns(decode(1)) == plain.service_ns(decode(1))  # too small to be split


def test_context_ranks_share_long_prompts_only() -> None:
    """Twice the ranks nearly halve a long prefill, and do not speed up a short decode."""
    spec = SHELF.model("llama-3.1-405b").spec
    one, two = (compile_cost(roofline_entry(spec, range(4), H100, Group(tensor=8, context=n))) for n in (1, 2))
    assert 1.8 < one.service_ns(prefill(128_000)) / two.service_ns(prefill(128_000)) <= 2.0
    assert two.service_ns(decode(1, 128)) > one.service_ns(decode(1, 128))
    assert two.service_ns(decode(64, 128_000)) < one.service_ns(decode(64, 128_000))


def test_the_ring_passes_what_the_conditions_say() -> None:
    """Meta: 2 N_KV / N_H of all tokens, and T >= N C N_KV e / (2 N_H BW)."""
    spec = SHELF.model("llama-3.1-405b").spec
    attention = roofline_entry(spec, [0], H100, Group(tensor=8, context=4)).groups[0].attention
    assert attention and attention.ring
    assert attention.ring.kv_share == pytest.approx(2 * 8 / 128)
    flops, rate = 8 * 989e12 * 0.6, 8 * 50e9
    assert attention.ring.kv_threshold_tokens == pytest.approx(4 * flops * 8 * 2 / (128 * rate))
    model = compile_cost(Roofline(groups=(msgspec.structs.replace(roofline_entry(spec, [0], H100).groups[0]),)))
    assert model.service_ns(prefill(10)) > 0


def test_groups_in_plans() -> None:
    plan = make_plan(DEEPSEEK, H800, PlanOptions(expert_parallel=32, context_tokens=4096, expert_imbalance=1.05)).plan
    assert [stage.devices for stage in plan.stages] == [32]
    check_plan(plan, "plan")
    bare, wide = (make_plan(LLAMA, H100, PlanOptions(tensor_parallel=4, context_parallel=n)) for n in (1, 2))
    assert wide.plan.stages[0].devices == 8
    assert wide.plan.stages[0].weight_bytes == 2 * bare.plan.stages[0].weight_bytes
    assert wide.plan.stages[0].kv_block_bytes == bare.plan.stages[0].kv_block_bytes
