"""The GEMMs of a layer: projections of one input that engines merge are one launch, and no column is lost."""

import pytest

from stageline.catalog.loader import Catalog
from stageline.cost.group import Group, local_params
from stageline.cost.layer_gemms import VECTORS, NamedGemm, layer_gemms
from stageline.cost.roofline_entry import roofline_entry

SHELF = Catalog()
TP8 = Group(tensor=8)


def gemms(model: str, layer: int, group: Group = TP8) -> dict[str, NamedGemm]:
    spec = SHELF.model(model).spec
    return {gemm.name: gemm for gemm in layer_gemms(spec, spec.layers[layer], group)}


def test_down_projections_of_queries_and_kv_are_one() -> None:
    """DeepSeek-V3: 1,536 + 512 + 64 columns, as SGLang's and vLLM's fused_qkv_a_proj."""
    found = gemms("deepseek-v3", 5)
    assert (found["q_a"].n, found["q_a"].k) == (2112, 7168)
    assert "kv_a" not in found
    assert {"router", "shared in"} <= found.keys(), "only before latent experts the front is merged"


def test_the_front_of_latent_experts_is_one() -> None:
    """Kimi K3 at TP8: 2 x 6,144 / 8 of the shared experts, 896 of the router, 3,584 / 8 of the latent projection."""
    found = gemms("kimi-k3", 3)
    assert (found["front"].n, found["front"].k) == (1536 + 896 + 448, 7168)
    assert list(gemms("kimi-k3", 1)) == ["qkvo out", "qkvo in", "shared out", "latent out", "front"]


@pytest.mark.parametrize(("model", "layer"), [("kimi-k3", 3), ("kimi-k3", 1), ("deepseek-v3", 5), ("llama-3.1-8b", 0)])
def test_merging_loses_no_weight(model: str, layer: int) -> None:
    spec = SHELF.model(model).spec
    wanted = sum(
        local_params(spec.layers[layer], t, 8, spec.hidden)
        for t in spec.layers[layer].tensors(spec.hidden)
        if t.weight_class not in ("routed_experts", "norms", "attention_minor") and t.name not in VECTORS
    )
    assert sum(gemm.n * gemm.k for gemm in gemms(model, layer).values()) == pytest.approx(wanted, rel=0.01)


def test_norms_read_every_block_of_attention_residuals() -> None:
    """Per token 2 norms x (4 + mean blocks) x 7,168 x 2 bytes at 0.8 of 8 TB/s; shared experts' activation besides."""
    spec, device = SHELF.model("kimi-k3").spec, SHELF.device("b300").device
    streams = sum(1 + -(-i // 12) for i in range(93)) / 93
    norms = 2 * (4 + streams - 1) * 7168 * 2 / (device.bandwidth_bytes_per_s * device.share.bandwidth) * 1e9
    plain = [layer for layer in range(93) if spec.layers[layer] == spec.layers[1]]
    group = roofline_entry(spec, plain, device, TP8).groups[0]
    other = spec.__class__(**{f: getattr(spec, f) for f in spec.__struct_fields__} | {"residual_block": 0})
    without = roofline_entry(other, plain, device, TP8).groups[0]
    extra = group.transfer_token_ns - without.transfer_token_ns
    assert extra == pytest.approx(norms * (streams - 1) / (streams + 3), rel=1e-6)
