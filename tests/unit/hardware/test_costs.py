"""Which constants a weight format and an attention take on a device."""

import msgspec
import pytest

from stageline.catalog.loader import Catalog
from stageline.cost.entries import Experts, LayerGroup
from stageline.cost.group import Group
from stageline.cost.roofline_entry import roofline_entry
from stageline.cost.service import compile_cost
from stageline.cost.totals import BatchTotals
from stageline.hardware.costs import KernelCosts, MoeCost
from stageline.model.spec import ModelSpec

SHELF = Catalog()


def in_format(name: str, weights: str) -> ModelSpec:
    """A model of the catalogue with all its experts and projections in a format."""
    spec = SHELF.model(name).spec
    layers = []
    for layer in spec.layers:
        formats = msgspec.structs.replace(layer.formats, routed_experts=weights, attention=weights)
        layers.append(msgspec.structs.replace(layer, formats=formats))
    return msgspec.structs.replace(spec, layers=tuple(layers))


def layer_of(spec: ModelSpec, device: str, layer: int = 5, group: Group = Group()) -> LayerGroup:
    return roofline_entry(spec, [layer], SHELF.device(device).device, group).groups[0]


def experts_of(spec: ModelSpec, device: str) -> Experts:
    found = layer_of(spec, device).experts
    assert found is not None
    return found


def constants_of(device: str, fmt: str) -> MoeCost:
    costs: KernelCosts | None = SHELF.device(device).device.costs
    assert costs is not None
    return next(row for row in costs.moe if row.format == fmt)


@pytest.mark.parametrize("device", ["h100-sxm", "h200"])
@pytest.mark.parametrize("tokens", [1, 64, 512, 4096])
def test_fp8_experts_are_no_slower_than_bf16_on_hopper(device: str, tokens: int) -> None:
    """Triton's rows: 0.6 to 1 x BF16. Static scales run in another kernel, which the tables time at 1.9 to 3.1 x."""
    totals = BatchTotals(decode_sequences=tokens, decode_tokens=tokens)
    ns = {}
    for weights in ("bf16", "fp8", "fp8-static"):
        group = msgspec.structs.replace(layer_of(in_format("qwen3-30b-a3b", weights), device), attention=None)
        entry = roofline_entry(in_format("qwen3-30b-a3b", weights), [5], SHELF.device(device).device)
        ns[weights] = compile_cost(msgspec.structs.replace(entry, groups=(group,))).service_ns(totals)
    assert ns["fp8"] < 1.1 * ns["bf16"]
    assert ns["fp8-static"] > 1.3 * ns["fp8"]


def test_nvfp4_without_fp4_units_is_multiplied_in_bf16() -> None:
    """Marlin: BF16 FLOPs, 4.5 bits per weight; on Blackwell NVFP4 has constants of its own."""
    spec, wide = in_format("qwen3-30b-a3b", "nvfp4"), in_format("qwen3-30b-a3b", "bf16")
    h100 = SHELF.device("h100-sxm").device
    one, marlin = 3 * 2048 * 768, constants_of("h100-sxm", "mxfp4")
    found = experts_of(spec, "h100-sxm")
    assert found.token_ns == pytest.approx(2 * one * 8 / (h100.peak_flops.bf16 * marlin.flops) * 1e9)
    read = one * 4.5 / 8 / (h100.bandwidth_bytes_per_s * marlin.bandwidth) * 1e9
    assert found.expert_ns == pytest.approx(read + marlin.expert_ns)
    narrow, same = (layer_of(s, "h100-sxm").gemms for s in (spec, wide))
    own = max(narrow, key=lambda gemm: gemm.token_ns)
    assert own.token_ns in [pytest.approx(gemm.token_ns, rel=0.1) for gemm in same]  # all but the router
    b200, native = SHELF.device("b200").device, constants_of("b200", "nvfp4")
    per_token = 2 * one * 8 / (b200.peak_flops.fp4 * native.flops) * 1e9
    assert experts_of(spec, "b200").token_ns == pytest.approx(per_token)


@pytest.mark.parametrize(
    ("device", "model", "fmt"),
    [
        ("h100-sxm", "gpt-oss-120b", "mxfp4-openai"),
        ("b200", "gpt-oss-120b", "mxfp4-openai"),
        ("l40s", "gpt-oss-120b", "mxfp4"),  # in Marlin there
        ("h100-sxm", "kimi-k3", "mxfp4"),
        ("b200", "kimi-k3", "mxfp4-w4a8"),
    ],
)
def test_mxfp4_has_a_kernel_of_its_own_for_gpt_oss(device: str, model: str, fmt: str) -> None:
    assert experts_of(SHELF.model(model).spec, device).unhidden == constants_of(device, fmt).unhidden


def test_flash_attention_2_reads_a_window_once_per_query_head() -> None:
    """Of 64 query heads over 8 KV heads; FlashAttention 3 packs them."""
    spec = SHELF.model("gpt-oss-120b").spec
    for device, heads in (("l40s", 64), ("h100-sxm", 8)):
        costs = SHELF.device(device).device.costs
        assert costs is not None
        for layer, own in ((0, heads), (1, 8)):  # a window, and none
            attention = layer_of(spec, device, layer).attention
            assert attention is not None and attention.decode
            assert attention.decode.sequence_ns == pytest.approx(costs.decode[0].head_ns * own)
            halved = layer_of(spec, device, layer, Group(tensor=2)).attention
            assert halved is not None and halved.decode
            assert halved.decode.sequence_ns == pytest.approx(costs.decode[0].head_ns * own / 2)


def test_prefill_pays_for_queries_that_the_cache_does_not_hold() -> None:
    """32 heads of 128, in and out, 2 bytes: 16 KiB per token, and 50 MiB of cache on H100."""
    spec, costs = SHELF.model("llama-3.1-8b").spec, SHELF.device("h100-sxm").device.costs
    assert costs is not None
    for group, held in ((Group(), 3200), (Group(tensor=2), 6400)):
        attention = layer_of(spec, "h100-sxm", 1, group).attention
        assert attention is not None and attention.prefill and attention.prefill.spill
        assert attention.prefill.spill.held_tokens == pytest.approx(held)
        traffic = 16384 / group.tensor / 3.35e12 * 1e9
        assert attention.prefill.spill.token_ns == pytest.approx(costs.prefill[0].query * traffic)
        assert attention.prefill.sequence_ns == pytest.approx(costs.prefill[0].block_ns * 32 / group.tensor / 2)
