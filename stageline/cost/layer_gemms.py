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
FRONT = frozenset({"router", "shared in", "latent in"})  # one GEMM before experts that run in a latent space
MLA_MODULE = frozenset({"q_a", "q_b", "kv_a", "kv_b", "o"})  # what an MLA module's times hold


class NamedGemm(NamedTuple):
    """tokens x k by k x n, in a weight format."""

    name: str
    format: str
    n: int
    k: int


def layer_gemms(spec: ModelSpec, layer: Layer, group: Group, without: frozenset[str] = frozenset()) -> list[NamedGemm]:
    """In the order of the layer's tensors, but for those `without`; vectors have no GEMM of their own.

    Projections of the same input that engines merge are one: MLA's down-projections of queries and of KV (SGLang's and
    vLLM's fused_qkv_a_proj), and what stands before latent experts (SGLang's Kimi K3, `_merge_front_weights`).
    """
    found: list[NamedGemm] = []
    for t in layer.tensors(spec.hidden):
        if t.weight_class in ("routed_experts", "norms") or not t.params or t.name in VECTORS | without:
            continue
        if t.weight_class == "attention_minor" and t.name not in JOINED:
            continue
        made = _gemms(spec, layer, t, local_params(layer, t, group.tensor, spec.hidden))
        before = next((i for i, g in enumerate(found) if (g.name, t.name) == ("q_a", "kv_a")), len(found) - 1)
        if t.name in JOINED and found and _one_input(made[0], found[before]):
            found[before] = found[before]._replace(n=found[before].n + made[0].n)
        else:
            found += made
    return _with_front(found) if isinstance(layer.ffn, Moe) and layer.ffn.latent_width else found


def _one_input(one: NamedGemm, other: NamedGemm) -> bool:
    return (one.k, one.format) == (other.k, other.format)


def _with_front(found: list[NamedGemm]) -> list[NamedGemm]:
    """The same with one GEMM before the experts, if all its parts have one format."""
    parts = [gemm for gemm in found if gemm.name in FRONT]
    if not parts or not all(_one_input(gemm, parts[0]) for gemm in parts):
        return found
    front = parts[0]._replace(name="front", n=sum(gemm.n for gemm in parts))
    return [gemm for gemm in found if gemm.name not in FRONT] + [front]


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
