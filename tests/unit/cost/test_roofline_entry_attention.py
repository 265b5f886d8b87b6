"""What sparse, compressed, chunked and state-space attention cost, from their rules by hand."""

from typing import Any

import msgspec
import pytest

from stageline.catalog.loader import Catalog
from stageline.cost.entries import LayerGroup
from stageline.cost.group import Group, layer_group_bytes, local_params
from stageline.cost.roofline_entry import operations, roofline_entry
from stageline.cost.service import compile_cost
from stageline.cost.totals import BatchTotals
from stageline.model.attention import Attention, Compressed, Gqa, Lightning, Mamba, Mamba2, Mla, Parallel
from stageline.model.attention_kind import NoAttention
from stageline.model.ffn import Dense, Ffn, Moe, NoFfn
from stageline.model.formats import WeightFormats
from stageline.model.spec import Layer, ModelSpec
from stageline.model.tensors import tensor
from stageline.plan.build import make_plan
from stageline.plan.check import check_plan
from stageline.plan.options import PlanOptions
from stageline.plan.parse import parse_plan

SHELF = Catalog()
H100 = msgspec.structs.replace(SHELF.device("h100-sxm").device, costs=None)
HIDDEN, DENSE = 1024, Dense(width=4096)
MLA: dict[str, Any] = {"heads": 16, "q_rank": 256, "kv_rank": 512, "nope_dim": 128, "rope_dim": 64, "value_dim": 128}
SPARSE = Mla(**MLA, index_heads=8, index_dim=128, index_top_k=2048)
PACKED = Compressed(
    heads=16, head_dim=512, q_rank=256, o_rank=128, o_groups=4, window_tokens=128, ratio=4, index_heads=8,
    index_dim=128, index_top_k=512,
)  # fmt: skip
MAMBA = Mamba2(heads=32, head_dim=64, state_dim=128, groups=8, conv_kernel=4)


def model(attention: Attention, ffn: Ffn = DENSE, layers: int = 4, **fields: Any) -> ModelSpec:
    layer = Layer(attention, ffn, WeightFormats())
    return ModelSpec(name="x", hidden=HIDDEN, vocab=1000, layers=(layer,) * layers, formats=WeightFormats(), **fields)


def group(attention: Attention, ffn: Ffn = DENSE, ranks: Group = Group()) -> LayerGroup:
    return roofline_entry(model(attention, ffn, 1), [0], H100, ranks).groups[0]


def flops_ns(flops: float, peak: float) -> float:
    return flops * 1e9 / (peak * H100.share.flops)


def bytes_ns(size: float) -> float:
    return size * 1e9 / (H100.bandwidth_bytes_per_s * H100.share.bandwidth)


def step(spec: ModelSpec, context: int, sequences: int = 8) -> int:
    """A decode step of the first layer."""
    kv = context * sequences
    totals = BatchTotals(decode_sequences=sequences, decode_tokens=sequences, decode_kv_tokens=kv, decode_pairs=kv)
    return compile_cost(roofline_entry(spec, [0], H100)).service_ns(totals)


def test_sparse_attention_reads_its_choice_and_an_index_of_everything() -> None:
    found = group(SPARSE)
    assert found.attention and found.attention.window_tokens == 2048
    assert found.attention.kv_ns == pytest.approx(bytes_ns(576 * 2))
    assert found.attention.prefill_pair_ns == pytest.approx(flops_ns(2 * 16 * (2 * 512 + 64), H100.peak_flops.bf16))
    assert found.more_attention
    (index,) = found.more_attention
    assert index.window_tokens == 0 and index.kv_ns == pytest.approx(bytes_ns(132))
    assert H100.peak_flops.fp8 is not None
    assert index.decode_pair_ns == pytest.approx(flops_ns(2 * 8 * 128, H100.peak_flops.fp8))


def test_a_layer_without_an_indexer_costs_less_and_a_dense_one_more() -> None:
    dense, sparse, borrowed = Mla(**MLA), SPARSE, Mla(**MLA, index_top_k=2048)
    times = [step(model(a), 65_536) for a in (borrowed, sparse, dense)]
    assert times == sorted(times) and len(set(times)) == 3
    assert step(model(borrowed), 65_536) == step(model(borrowed), 4096)


def test_every_rank_runs_the_whole_indexer() -> None:
    one, four = group(SPARSE), group(SPARSE, ranks=Group(tensor=4))
    assert one.more_attention and four.more_attention and one.attention and four.attention
    assert four.more_attention[0] == one.more_attention[0]
    assert four.attention.decode_pair_ns == pytest.approx(one.attention.decode_pair_ns / 4)
    layer = model(SPARSE).layers[0]
    index = next(t for t in layer.tensors(HIDDEN) if t.name == "index")
    assert local_params(layer, index, 4, HIDDEN) == index.params == 256 * 8 * 128 + HIDDEN * 128


def test_compressed_attention_is_a_choice_of_entries_an_index_and_a_window() -> None:
    found = group(PACKED)
    pair = 4 * 16 * 512
    assert found.attention and found.attention.window_tokens == 512 * 4  # tokens that 512 entries stand for
    assert found.attention.decode_pair_ns == pytest.approx(flops_ns(pair / 4, H100.peak_flops.bf16))
    assert found.attention.kv_ns == pytest.approx(bytes_ns(512 / 4 * 2))
    assert found.more_attention
    index, window = found.more_attention
    assert index.kv_ns == pytest.approx(bytes_ns(132 / 4)) and index.window_tokens == 0
    assert window.window_tokens == 128 and window.kv_ns == pytest.approx(bytes_ns(1024))
    plain = msgspec.structs.replace(PACKED, ratio=0, index_heads=0, index_dim=0, index_top_k=0)
    assert group(plain).attention == window


def test_ledgers_keep_windows_and_what_grows_apart() -> None:
    found = make_plan(model(PACKED), H100, PlanOptions()).plan
    stage = found.stages[0]
    assert stage.kv_block_bytes == 4 * 16 * (128 * 2 + 33)
    windows = {w.most_blocks: w.block_bytes for w in stage.windows}
    assert windows == {1: 4 * 16 * 2 * 4 * 2 * (512 + 128), 8: 4 * 16 * 1024}
    check_plan(found, "plan")
    assert parse_plan(found.canonical(), "plan") == found


def test_plans_of_other_models_have_no_further_attention() -> None:
    plan = make_plan(SHELF.model("deepseek-v3").spec, H100, PlanOptions(tensor_parallel=16, devices=16)).plan
    assert b"more_attention" not in plan.canonical()


def test_chunks_are_read_by_half_on_average_and_kept_whole() -> None:
    chunked = Gqa(heads=16, kv_heads=4, head_dim=128, chunk_tokens=8192)
    found = group(chunked).attention
    assert found and found.window_tokens == 4096
    stage = make_plan(model(chunked), H100, PlanOptions()).plan.stages[0]
    assert [w.most_blocks for w in stage.windows] == [512]
    # A prompt of four chunks forms 4 x 8192^2 / 2 pairs, T x 4096.
    assert 4 * 8192 * found.window_tokens == 4 * 8192**2 // 2


def test_state_space_layers_read_and_write_their_state_once() -> None:
    found = group(MAMBA, NoFfn()).linear
    assert found
    recurrent, conv = 32 * 64 * 128, 3 * (2048 + 2 * 8 * 128)
    assert found.sequence_ns == pytest.approx(bytes_ns(2 * (recurrent * 4 + conv * 2)))
    assert found.token_ns == pytest.approx(flops_ns(6 * recurrent, H100.peak_flops.bf16))
    lightning = group(Lightning(heads=8, head_dim=128)).linear
    assert lightning and lightning.sequence_ns == pytest.approx(bytes_ns(2 * 8 * 128 * 128 * 4))


MAMBA_1 = Mamba(width=2048, state_dim=16, step_rank=64, conv_kernel=4)
PARALLEL = Parallel(attention=Gqa(heads=16, kv_heads=4, head_dim=128), state_space=MAMBA)


def test_attention_and_a_state_side_by_side_cost_what_each_costs() -> None:
    both, alone, state = (group(kind) for kind in (PARALLEL, PARALLEL.attention, MAMBA))
    assert both.attention == alone.attention and both.linear == state.linear
    assert len(both.collectives) == len(alone.collectives)  # their outputs are added before the ranks' sum
    layer = Layer(PARALLEL, DENSE, WeightFormats())
    for name, kind in (("qkv", PARALLEL.attention), ("bc", MAMBA)):
        one = next(t for t in kind.tensors(HIDDEN) if t.name == name)
        assert local_params(layer, one, 16, HIDDEN) == local_params(
            Layer(kind, DENSE, WeightFormats()), one, 16, HIDDEN
        )
        assert local_params(layer, one, 16, HIDDEN) > one.params / 16  # heads and groups are copied


def test_layers_of_one_part_have_one_norm_one_all_reduce_and_no_attention() -> None:
    alone = Layer(NoAttention(), DENSE, WeightFormats())
    both = Layer(MAMBA, DENSE, WeightFormats())
    assert operations(both) - operations(alone) == 6  # five kernels and a norm
    assert sum(t.params for t in alone.tensors(HIDDEN) if t.name == "norms") == HIDDEN
    found = group(NoAttention(), ranks=Group(tensor=4))
    assert (found.attention, found.linear) == (None, None) and len(found.collectives) == 1
    experts = Moe(experts=8, top_k=2, width=512)
    spread = Group(tensor=2, attention_replicas=2, experts=True)
    assert (
        len(group(MAMBA, experts, spread).collectives) == 1 + 3 and len(group(MAMBA, NoFfn(), spread).collectives) == 1
    )
    assert len(group(NoAttention(), experts, spread).collectives) == 3


def test_ungated_experts_are_two_thirds_of_gated_ones() -> None:
    gated, plain = (Moe(experts=8, top_k=2, width=512, gated=g) for g in (True, False))
    assert plain.expert_params(HIDDEN) * 3 == gated.expert_params(HIDDEN) * 2
    first, second = (group(MAMBA, ffn).experts for ffn in (gated, plain))
    assert first and second and second.expert_ns == pytest.approx(first.expert_ns * 2 / 3)


def test_weights_that_belong_to_no_part_are_on_every_rank() -> None:
    extra = (tensor("hyper_connections", "router", 1000),)
    layer = Layer(MAMBA, DENSE, WeightFormats(), extra)
    spec = msgspec.structs.replace(model(MAMBA), layers=(layer,))
    plain = layer_group_bytes(spec, Layer(MAMBA, DENSE, WeightFormats()), Group(tensor=4))
    assert layer_group_bytes(spec, layer, Group(tensor=4)) - plain == 4 * 2000


def test_a_single_group_of_maps_is_on_every_rank() -> None:
    alone = Layer(msgspec.structs.replace(MAMBA, groups=1), NoFfn(), WeightFormats())
    maps = next(t for t in alone.tensors(HIDDEN) if t.name == "bc")
    assert local_params(alone, maps, 4, HIDDEN) == maps.params == 2 * HIDDEN * 128


@pytest.mark.parametrize(
    "attention",
    [SPARSE, PACKED, MAMBA, MAMBA_1, PARALLEL, Lightning(heads=8, head_dim=128)],
    ids=lambda a: type(a).__name__,
)
@pytest.mark.parametrize("ranks", [{"tensor_parallel": 4}, {"context_parallel": 2}, {"devices": 2}])
def test_every_kind_plans_in_every_division(attention: Attention, ranks: dict[str, int]) -> None:
    experts = Moe(experts=8, top_k=2, width=512, shared_width=512)
    plan = make_plan(model(attention, experts), H100, PlanOptions(**ranks)).plan  # type: ignore[arg-type]
    check_plan(plan, "plan")
    assert all(visit.min_service_ns > 1 for visit in plan.visits)


def test_utilisation_counts_what_queries_read() -> None:
    work = make_plan(model(SPARSE, layers=2), H100, PlanOptions()).plan.stages[0].work
    assert work and work.pair_flops == 2 * 2 * 8 * 128 and work.read_limits
    (limit,) = work.read_limits
    assert (limit.read_tokens, limit.kv_bytes) == (2048, 2 * 576 * 2)
    assert limit.pair_flops == 2 * 2 * 16 * (2 * 512 + 64)
    window = Gqa(heads=16, kv_heads=4, head_dim=128, window_tokens=1024)
    for options, kept in ((PlanOptions(), 0), (PlanOptions(whole_kv=True), 4 * 2 * 4 * 128 * 2)):
        work = make_plan(model(window), H100, options).plan.stages[0].work
        assert work and work.read_limits and work.pair_flops == 0 and work.read_limits[0].kv_bytes == kept
