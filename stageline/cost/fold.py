"""Folding: a shard's layers and a device become the coefficients of a `Roofline` entry.

Per operation max(FLOPs / (peak * share), bytes / (bandwidth * share)); a GEMM of P weights takes 2 P FLOPs per token
and reads its weights once per step. Operations whose weights have the same format keep the same knee and are added up.
Norms, activations and the embedding's look-up move few bytes and are left to the overhead per operation.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from stageline.cost.collective import all_reduce
from stageline.cost.entries import Experts, FullAttention, Gemm, Head, LayerGroup, LinearAttention, Roofline
from stageline.hardware.device import Device
from stageline.model.attention import Gqa, Mla
from stageline.model.ffn import Moe
from stageline.model.formats import ELEMENT_BYTES, FORMATS, Format, weight_bytes
from stageline.model.spec import CONV_STATE_BYTES, Layer, ModelSpec

# Operations (kernels) of a layer, for the overhead per operation [computed: counted in serving engines' eager graphs].
ATTENTION_OPS = {"gqa": 4, "mla": 7, "kda": 6, "gated-delta": 6}
DENSE_OPS, MOE_OPS, SHARED_OPS, LATENT_OPS, NORM_OPS = 3, 6, 3, 2, 2


class Rates(NamedTuple):
    """What one tensor group of `ranks` devices reaches."""

    device: Device
    ranks: int

    def flops_ns(self, flops: float, fmt: Format) -> float:
        """Time of FLOPs that are split over the ranks."""
        return flops * 1e9 / (self.device.peak_flops.at(fmt.precision) * self.device.share.flops * self.ranks)

    def bytes_ns(self, size: float) -> float:
        """Time to read bytes that are split over the ranks."""
        return size * 1e9 / (self.device.bandwidth_bytes_per_s * self.device.share.bandwidth * self.ranks)


PLAIN = FORMATS["bf16"]  # attention multiplies in bf16 whatever the cache is stored in


def fold(spec: ModelSpec, layers: Sequence[int], device: Device, ranks: int = 1, head: bool = False) -> Roofline:
    """The entry of a visit to these layers on a tensor group of `ranks` devices, with the LM head or without."""
    rates = Rates(device, ranks)
    kinds = Counter(spec.layers[i] for i in layers)
    groups = tuple(_group(spec, layer, count, rates) for layer, count in kinds.items())
    return Roofline(groups=groups, head=_head(spec, rates) if head else None)


def _group(spec: ModelSpec, layer: Layer, count: int, rates: Rates) -> LayerGroup:
    latency_ns, byte_ns = all_reduce(rates.device, rates.ranks)
    overhead = rates.device.overhead
    fitted = overhead.moe_layer_ns if isinstance(layer.ffn, Moe) else overhead.dense_layer_ns
    return LayerGroup(
        layers=count,
        overhead_ns=float(fitted + overhead.op_ns * operations(layer)) + 2 * latency_ns,
        gemms=_gemms(spec, layer, rates),
        experts=_experts(spec, layer, rates),
        attention=None if layer.attention.linear else _full(spec, layer, rates),
        linear=_linear(spec, layer, rates) if layer.attention.linear else None,
        transfer_token_ns=2 * byte_ns * spec.hidden * ELEMENT_BYTES[spec.activation_type],
    )


def operations(layer: Layer) -> int:
    """Kernels that a layer launches."""
    ops = NORM_OPS + ATTENTION_OPS[str(type(layer.attention).__struct_config__.tag)]
    if not isinstance(layer.ffn, Moe):
        return ops + DENSE_OPS
    return ops + MOE_OPS + SHARED_OPS * (layer.ffn.shared_width > 0) + LATENT_OPS * (layer.ffn.latent_width > 0)


def _gemms(spec: ModelSpec, layer: Layer, rates: Rates) -> tuple[Gemm, ...]:
    """One GEMM per weight format: all weights that every token uses."""
    params: Counter[Format] = Counter()
    for t in layer.tensors(spec.hidden):
        if t.weight_class not in ("routed_experts", "norms"):
            params[layer.formats.of(t.weight_class)] += t.params
    return tuple(
        Gemm(token_ns=rates.flops_ns(2 * n, fmt), weights_ns=rates.bytes_ns(weight_bytes(n, fmt)))
        for fmt, n in params.items()
        if n
    )


def _experts(spec: ModelSpec, layer: Layer, rates: Rates) -> Experts | None:
    """Routed experts, each sharded over all ranks."""
    if not isinstance(layer.ffn, Moe):
        return None
    fmt, one = layer.formats.of("routed_experts"), layer.ffn.expert_params(spec.hidden)
    return Experts(
        experts=layer.ffn.experts,
        top_k=layer.ffn.top_k,
        token_ns=rates.flops_ns(2 * one * layer.ffn.top_k, fmt),
        expert_ns=rates.bytes_ns(weight_bytes(one, fmt)),
    )


def kv_group_elements(layer: Layer, ranks: int) -> int:
    """Cache elements per token in a whole tensor group: MLA keeps a copy on every rank, GQA ceil(kv_heads / ranks)."""
    if isinstance(layer.attention, Mla):
        return layer.attention.kv_elements() * ranks
    if isinstance(layer.attention, Gqa):
        return 2 * layer.attention.head_dim * -(-layer.attention.kv_heads // ranks) * ranks
    return 0


def _full(spec: ModelSpec, layer: Layer, rates: Rates) -> FullAttention:
    assert isinstance(layer.attention, (Gqa, Mla))
    decode, prefill = layer.attention.pair_flops()
    kv = kv_group_elements(layer, rates.ranks) * ELEMENT_BYTES[spec.kv_type]
    return FullAttention(
        decode_pair_ns=rates.flops_ns(decode, PLAIN),
        prefill_pair_ns=rates.flops_ns(prefill, PLAIN),
        kv_ns=rates.bytes_ns(kv),
        window_tokens=layer.attention.window_tokens if isinstance(layer.attention, Gqa) else 0,
    )


def _linear(spec: ModelSpec, layer: Layer, rates: Rates) -> LinearAttention:
    """8 FLOPs per element of the recurrent state and token; the state is read and written once per sequence."""
    recurrent, conv = layer.attention.state_elements()
    size = recurrent * ELEMENT_BYTES[spec.state_type] + conv * CONV_STATE_BYTES
    return LinearAttention(token_ns=rates.flops_ns(8 * recurrent, PLAIN), sequence_ns=rates.bytes_ns(2 * size))


def _head(spec: ModelSpec, rates: Rates) -> Head:
    fmt = spec.formats.of("embedding" if spec.tied else "head")
    params = spec.vocab * spec.hidden
    return Head(
        row_ns=rates.flops_ns(2 * params, fmt),
        weights_ns=rates.bytes_ns(weight_bytes(params, fmt)),
        overhead_ns=float(rates.device.overhead.op_ns),
    )
