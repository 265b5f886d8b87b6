"""The roofline: values by hand, its ridge point, experts, TP, and entries of real models."""

import random
from collections import Counter

import msgspec
import pytest

from stageline.catalog.loader import Catalog
from stageline.cost.collective import all_reduce
from stageline.cost.entries import Affine, Experts, FullAttention, Gemm, LayerGroup, LinearAttention, LmHead, Roofline
from stageline.cost.group import Group
from stageline.cost.roofline_entry import operations, roofline_entry
from stageline.cost.service import compile_cost, min_service_ns
from stageline.cost.tables import distinct_experts
from stageline.cost.totals import BatchTotals
from stageline.hardware.device import Device, Overhead, Peak, Share
from stageline.hardware.networks import Network
from stageline.model.attention import Gqa
from stageline.model.ffn import Dense
from stageline.model.formats import WeightFormats
from stageline.model.spec import Layer, ModelSpec

SHELF = Catalog()
BARE = msgspec.structs.replace(SHELF.device("h100-sxm").device, costs=None)  # one share for all kinds and formats


def decode(sequences: int, kv: int, sampled: int = 0) -> BatchTotals:
    return BatchTotals(
        decode_sequences=sequences,
        decode_tokens=sequences,
        decode_kv_tokens=sequences * kv,
        decode_pairs=sequences * kv,
        sampled=sequences if sampled else 0,
    )


def prefill(tokens: int, cached: int = 0) -> BatchTotals:
    pairs = tokens * cached + tokens * (tokens + 1) // 2
    return BatchTotals(
        prefill_sequences=1, prefill_tokens=tokens, prefill_kv_tokens=cached + tokens, prefill_pairs=pairs
    )


@pytest.mark.parametrize(
    ("experts", "top_k", "expected"),
    [
        (896, 16, {1: 16.0, 4: 62.3, 16: 224.4, 64: 613.2, 256: 887.1}),
        (384, 8, {1: 8.0, 4: 31.0, 16: 109.8, 64: 284.2, 256: 382.2}),
        (256, 8, {1: 8.0, 4: 30.5, 16: 102.0, 64: 222.4, 256: 255.9}),
        (128, 8, {1: 8.0, 4: 29.1, 16: 82.4, 64: 125.9, 256: 128.0}),
    ],
)
def test_distinct_experts(experts: int, top_k: int, expected: dict[int, float]) -> None:
    table = distinct_experts(experts, top_k)
    assert {b: round(table[min(b, len(table) - 1)], 1) for b in expected} == expected
    assert table[-1] == experts
    assert list(table) == sorted(table)


@pytest.mark.parametrize(("experts", "top_k", "ranks"), [(16, 1, 4), (128, 8, 2), (128, 8, 8), (256, 8, 8)])
def test_distinct_experts_of_the_rank_that_reads_most(experts: int, top_k: int, ranks: int) -> None:
    """Within 3 % of draws in which every token picks top_k experts."""
    rng = random.Random(1)
    table = distinct_experts(experts, top_k, spread=ranks)
    assert table[-1] == experts and list(table) == sorted(table)
    assert all(spread >= whole for spread, whole in zip(table, distinct_experts(experts, top_k), strict=False))
    for batch in (1, 4, 16):
        drawn = 0
        for _ in range(400):
            hit = {expert for _ in range(batch) for expert in rng.sample(range(experts), top_k)}
            drawn += max(Counter(expert % ranks for expert in hit).values())
        assert table[batch] / ranks == pytest.approx(drawn / 400, rel=0.03)


def test_values_by_hand() -> None:
    group = LayerGroup(
        layers=2,
        overhead_ns=10.0,
        gemms=(Gemm(token_ns=1.0, weights_ns=5.0),),
        experts=Experts(experts=4, top_k=4, token_ns=2.0, expert_ns=3.0),
        attention=FullAttention(decode_pair_ns=0.5, prefill_pair_ns=0.25, kv_ns=1.0),
        linear=LinearAttention(token_ns=0.5, sequence_ns=4.0),
        transfer_token_ns=0.125,
    )
    model = compile_cost(Roofline(groups=(group,), head=LmHead(row_ns=7.0, weights_ns=100.0, overhead_ns=1.0)))
    load = decode(2, 10, sampled=1)
    # overhead 10, transfer .25, gemm max(2, 5), experts max(4, 12), linear max(1, 8), attention max(10, 20); head 101
    assert model.service_ns(load) == round(2 * (10 + 0.25 + 5 + 12 + 8 + 20) + 101)
    # 8 tokens after 2 cached: 16 + 36 = 52 pairs, 10 KV: max(8, 5), max(16, 12), max(4, 4), max(13, 10); no head
    assert model.service_ns(prefill(8, 2)) == 2 * (10 + 1 + 8 + 16 + 4 + 13)


def test_rounds_half_to_even_once_and_never_below_one() -> None:
    def one(overhead: float) -> int:
        return compile_cost(Roofline(groups=(LayerGroup(layers=1, overhead_ns=overhead),))).service_ns(decode(1, 1))

    assert [one(x) for x in (0.0, 0.5, 1.5, 2.5, 3.5)] == [1, 1, 2, 2, 4]
    assert compile_cost(Affine(base_ns=0)).service_ns(decode(1, 1)) == 1


def test_sliding_windows_cap_pairs_and_kv() -> None:
    group = LayerGroup(
        layers=1,
        overhead_ns=0.0,
        attention=FullAttention(decode_pair_ns=1.0, prefill_pair_ns=0.0, kv_ns=1.0, window_tokens=100),
    )
    model = compile_cost(Roofline(groups=(group,)))
    assert model.service_ns(decode(1, 90)) == 90
    assert model.service_ns(decode(1, 5000)) == model.service_ns(decode(1, 9000)) == 101


def test_decode_is_flat_below_the_ridge_point() -> None:
    """Reading weights bounds a dense layer until batch ~ peak / bandwidth: doubling a small microbatch is free."""
    spec, device = SHELF.model("llama-3.1-8b").spec, BARE
    entry = roofline_entry(spec, range(32), device)
    model = compile_cost(entry)
    knee = entry.groups[0].gemms[0].weights_ns / entry.groups[0].gemms[0].token_ns
    assert 150 < knee < 300
    assert model.service_ns(decode(2, 1)) - model.service_ns(decode(1, 1)) < 100
    assert model.service_ns(decode(4 * int(knee), 1)) > 2 * model.service_ns(decode(1, 1))


def test_head_is_paid_per_sampled_row_only() -> None:
    spec, device = SHELF.model("llama-3.1-8b").spec, BARE
    with_head, without = (compile_cost(roofline_entry(spec, [31], device, head=h)) for h in (True, False))
    assert with_head.service_ns(decode(4, 100)) == without.service_ns(decode(4, 100))
    weights_ns = 2 * 4096 * 128_256 / (3.35e12 * 0.8) * 1e9
    extra = with_head.service_ns(decode(4, 100, sampled=1)) - without.service_ns(decode(4, 100))
    assert extra == pytest.approx(weights_ns + 3_000, abs=2)


def llama_2_13b_on_v5e() -> tuple[ModelSpec, Device]:
    """The scaling book's model and chip, at full peaks."""
    layer = Layer(Gqa(heads=40, kv_heads=40, head_dim=128), Dense(width=13_824), WeightFormats())
    spec = ModelSpec(name="x", hidden=5120, vocab=32_000, layers=(layer,) * 40, formats=WeightFormats())
    device = Device(
        name="v5e",
        title="v5e",
        kind="tpu",
        memory_bytes=16 * 10**9,
        bandwidth_bytes_per_s=820 * 10**9,
        peak_flops=Peak(bf16=197 * 10**12),
        share=Share(flops=1.0, bandwidth=1.0, memory=1.0),
        overhead=Overhead(),
        scale_out=Network(bytes_per_s=1 << 60, latency_ns=0),
    )
    return spec, device


STEPS = [(1, 4.98), (8, 12.13), (16, 20.30), (32, 36.65), (64, 69.33), (240, 249.09)]


@pytest.mark.parametrize(("batch", "milliseconds"), STEPS)
def test_the_scaling_books_table(batch: int, milliseconds: float) -> None:
    """From the book's own inputs: 26e9 bytes of weights and 6.7e9 bytes of KV per sequence over 8 x 820 GB/s."""
    rate, peak = 8 * 8.2e11, 8 * 197e12
    gemm = Gemm(token_ns=2 * 13e9 / peak * 1e9, weights_ns=26e9 / rate * 1e9)
    attention = FullAttention(decode_pair_ns=0.0, prefill_pair_ns=0.0, kv_ns=6.7e9 / 8192 / rate * 1e9)
    entry = Roofline(groups=(LayerGroup(layers=1, overhead_ns=0.0, gemms=(gemm,), attention=attention),))
    assert compile_cost(entry).service_ns(decode(batch, 8192)) / 1e6 == pytest.approx(milliseconds, rel=0.003)


@pytest.mark.parametrize(("batch", "milliseconds"), STEPS)
def test_the_scaling_books_table_from_the_model(batch: int, milliseconds: float) -> None:
    """Within 1 %: the book rounds 25.7e9 bytes of weights to 26e9."""
    spec, device = llama_2_13b_on_v5e()
    entry = roofline_entry(spec, range(40), device, Group(tensor=8), head=True)
    ns = compile_cost(entry).service_ns(decode(batch, 8192, sampled=1))
    assert ns / 1e6 == pytest.approx(milliseconds, rel=0.01)


def test_tp_divides_work_and_adds_collectives() -> None:
    spec, device = SHELF.model("llama-3.1-70b").spec, BARE
    one, four = (
        roofline_entry(spec, [0], device).groups[0],
        roofline_entry(spec, [0], device, Group(tensor=4)).groups[0],
    )
    assert four.gemms[0].weights_ns == pytest.approx(one.gemms[0].weights_ns / 4)
    assert four.attention is not None and one.attention is not None
    assert four.attention.kv_ns == pytest.approx(one.attention.kv_ns / 4)
    assert four.overhead_ns == one.overhead_ns
    assert one.collectives == ()
    after_attention, after_ffn = four.collectives
    assert after_attention == after_ffn
    measured, one_shot = after_ffn.ways
    assert (measured.latency_ns, measured.token_ns) == (28_000, pytest.approx(8192 * 2 * 1e9 / 236e9))
    assert (one_shot.latency_ns, one_shot.token_ns) == (10_000, pytest.approx(3 * 8192 * 2 * 1e9 / 450e9))


def test_tp_replicates_mla_kv() -> None:
    spec, device = SHELF.model("deepseek-v3").spec, BARE
    one, eight = (roofline_entry(spec, [5], device, Group(tensor=n)).groups[0].attention for n in (1, 8))
    assert one and eight
    assert eight.kv_ns == pytest.approx(one.kv_ns)
    assert eight.decode_pair_ns == pytest.approx(one.decode_pair_ns / 8)


def test_all_reduce_measured_and_ring() -> None:
    device = BARE
    assert all_reduce(device, 1) == ()
    assert all_reduce(device, 8) == ((35_000.0, 1e9 / 209e9), (10_000.0, 7 * 1e9 / 450e9))
    bare = msgspec.structs.replace(device, all_reduce=(), one_shot_ns=0)
    assert all_reduce(bare, 4) == ((6 * 8_000, pytest.approx(1.5 * 1e9 / 450e9)),)
    ring, *_ = all_reduce(device, 16)  # leaves the node: no one-shot kernel there
    assert ring.latency_ns == 30 * 7_000


def test_a_wafer_layer_is_bound_by_its_overhead() -> None:
    spec, device = SHELF.model("kimi-k3").spec, SHELF.device("wse-3t").device
    entry = roofline_entry(spec, [1, 2], device)
    ns = compile_cost(entry).service_ns(decode(4, 8192))
    assert 2 * 16_711 < ns < 2 * 16_711 * 1.05
    assert min_service_ns(entry) >= 2 * 16_711


def test_linear_attention_reads_and_writes_its_state() -> None:
    """K3: 13 MB per request and layer; 8 x heads x dk x dv FLOPs per token."""
    spec, device = SHELF.model("kimi-k3").spec, SHELF.device("wse-3t").device
    linear = roofline_entry(spec, [1], device).groups[0].linear
    assert linear is not None
    assert linear.sequence_ns == pytest.approx(2 * 6_512_640 / (43.2e15 * 0.8) * 1e9)
    assert linear.token_ns == pytest.approx(8 * 96 * 128 * 128 / (25e15 * 0.6) * 1e9)


def test_groups_are_one_per_kind_of_layer() -> None:
    spec, device = SHELF.model("kimi-k3").spec, SHELF.device("wse-3t").device
    assert [g.layers for g in roofline_entry(spec, range(93), device, head=True).groups] == [1, 68, 24]
    assert operations(spec.layers[0]) < operations(spec.layers[1])


def test_mla_flops() -> None:
    mla = SHELF.model("deepseek-v3").spec.layers[0].attention
    assert mla.pair_flops() == (2 * 128 * (2 * 512 + 64), 2 * 128 * (192 + 128))


def test_prefill_flops_of_a_dense_model() -> None:
    """2 x active parameters per token and 4 x heads x head_dim per pair, at the reached share of the peak."""
    spec, device = SHELF.model("llama-3.1-8b").spec, BARE
    tokens = 8192
    bare = msgspec.structs.replace(device, overhead=Overhead())
    ns = compile_cost(roofline_entry(spec, range(32), bare)).service_ns(prefill(tokens))
    weights = spec.active_params() - 4096 * 128_256
    flops = 2 * weights * tokens + 4 * 32 * 4096 * (tokens * (tokens + 1) / 2)
    assert ns == pytest.approx(flops / (989e12 * 0.6) * 1e9, rel=1e-6)
