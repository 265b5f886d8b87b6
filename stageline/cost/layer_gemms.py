"""The GEMMs that one device runs for a layer, with their shapes."""

from typing import NamedTuple

from stageline.cost.group import Group, local_params
from stageline.model.attention import Mla
from stageline.model.ffn import Dense, Moe
from stageline.model.spec import Layer, ModelSpec
from stageline.model.tensors import Tensor

TWO_GEMMS = frozenset({"ffn", "shared", "qkvo", "latent"})  # fused inputs and an output
VECTORS = frozenset({"bias", "conv", "shared_gate"})  # no GEMM of their own
JOINED = frozenset({"gate", "decay", "beta", "kv_a", "z"})  # columns of the projection before it
MLA_MODULE = frozenset({"q_a", "q_b", "kv_a", "kv_b", "o"})  # what an MLA module's times hold


class NamedGemm(NamedTuple):
    """tokens x k by k x n, in a weight format."""

    name: str
    format: str
    n: int
    k: int


def layer_gemms(spec: ModelSpec, layer: Layer, group: Group, without: frozenset[str] = frozenset()) -> list[NamedGemm]:
    """In the order of the layer's tensors, but for those `without`; vectors have no GEMM of their own."""
    found: list[NamedGemm] = []
    for t in layer.tensors(spec.hidden):
        if t.weight_class in ("routed_experts", "norms") or not t.params or t.name in VECTORS | without:
            continue
        if t.weight_class == "attention_minor" and t.name not in JOINED:
            continue
        made = _gemms(spec, layer, t, local_params(layer, t, group.tensor, spec.hidden))
        if t.name in JOINED and found and made[0].k == found[-1].k:
            found[-1] = found[-1]._replace(n=found[-1].n + made[0].n)
        else:
            found += made
    return found


def _gemms(spec: ModelSpec, layer: Layer, t: Tensor, here: float) -> list[NamedGemm]:
    hidden, fmt, attention = spec.hidden, getattr(layer.formats, t.weight_class), layer.attention

    def gemm(name: str, n: float, k: float) -> NamedGemm:
        return NamedGemm(name, fmt, max(1, round(n)), max(1, round(k)))

    if t.name == "latent":
        width = here / 2 / hidden
        return [gemm("latent in", width, hidden), gemm("latent out", hidden, width)]
    if t.name in TWO_GEMMS:
        inputs = 3 if t.name == "qkvo" else 2
        if t.name in ("ffn", "shared") and isinstance(layer.ffn, (Dense, Moe)):
            inputs = 1 + layer.ffn.gated
        width = here / hidden / (inputs + 1)
        return [gemm(f"{t.name} out", hidden, width), gemm(f"{t.name} in", inputs * width, hidden)]
    if t.name == "o":
        return [gemm(t.name, hidden, here / hidden)]
    if isinstance(attention, Mla) and t.name in ("q_b", "kv_b"):
        k = attention.kv_rank if t.name == "kv_b" else attention.q_rank or hidden
        return [gemm(t.name, here / k, k)]
    return [gemm(t.name, here / hidden, hidden)]
