"""A layer's coefficients from the constants of a device's kernels (`stageline.hardware.costs`).

All constants are folded here, when a plan is made. Times that grow with the tokens alone go into the layer's
transfer_token_ns, fixed times into its overhead_ns.
"""

from typing import NamedTuple

import msgspec
from msgspec import UNSET

from stageline.cost.entries import Experts, FullAttention, Gemm, LinearAttention, Phase, Spill
from stageline.cost.group import Group, local_params
from stageline.cost.layer_gemms import layer_gemms
from stageline.hardware.costs import QUERY_TILE, WINDOW_TILE, DecodeCost, KernelCosts, PrefillCost
from stageline.hardware.device import Device
from stageline.model.attention import GatedDelta, Gqa, Kda, Mla
from stageline.model.ffn import Dense, Moe, NoFfn
from stageline.model.formats import Precision, WeightFormat, format_named
from stageline.model.spec import Layer, ModelSpec

# Kernels beside GEMMs, attention and experts: a norm before each part, the rotary embedding or gates, the FFN's
# activation. Assumed.
FFN_OPS = 1
ATTENTION_OPS = {"none": 0, "gqa": 1, "kda": 0}  # of the other kinds 2; KDA's kernel holds its gates and norm
NORM_VECTORS = 4  # input and residual, read and written
TRAFFIC_BYTES = 2  # per element of a GEMM's inputs and outputs


class Folded(NamedTuple):
    """One kind of operation: its part of the entry, and what it adds to the layer."""

    overhead_ns: float = 0.0
    token_ns: float = 0.0


def _rate_ns(rate: float, share: float) -> float:
    return 1e9 / (rate * share)


def elementwise(spec: ModelSpec, layer: Layer, device: Device, group: Group) -> Folded:
    """The kernels that no constants cover: the device's overhead per operation, and bytes at its share of bandwidth.

    A norm adds a part's output to the residual: per token two hidden vectors in, two out, on every tensor rank unless
    the sequence is split. With attention residuals it reads every block before it instead of one (their mean over the
    model's layers). An activation reads an FFN's inputs and writes its outputs; that of routed experts is in their
    own constants.
    """
    kind = str(type(layer.attention).__struct_config__.tag)
    ops = layer.parts + FFN_OPS * (not isinstance(layer.ffn, NoFfn)) + ATTENTION_OPS.get(kind, 2)
    norm = layer.parts * spec.hidden * (NORM_VECTORS + _mean_streams(spec) - 1)
    width = layer.ffn.width if isinstance(layer.ffn, Dense) else getattr(layer.ffn, "shared_width", 0)
    activation = width * (2 + getattr(layer.ffn, "gated", 0)) / group.tensor
    elements = norm / (group.tensor if group.sequence_parallel else 1) + activation
    read = device.bandwidth_bytes_per_s * device.share.bandwidth
    return Folded(float(device.overhead.op_ns * ops), elements * TRAFFIC_BYTES * 1e9 / read / group.attention_replicas)


def _mean_streams(spec: ModelSpec) -> float:
    """Residual streams that a layer reads, one or as many as blocks of attention residuals came before."""
    block = spec.residual_block
    return sum(1 + -(-i // block) for i in range(len(spec.layers))) / len(spec.layers) if block else 1.0


def gemms(
    spec: ModelSpec, layer: Layer, device: Device, costs: KernelCosts, group: Group
) -> tuple[tuple[Gemm, ...], Folded]:
    """The GEMMs of a layer, added up by weight format, which have one ridge point; their fixed times and traffic."""
    params: dict[str, float] = {}
    for t in layer.tensors(spec.hidden):
        if t.weight_class not in ("routed_experts", "norms") and t.params:
            name: str = getattr(layer.formats, t.weight_class)
            params[name] = params.get(name, 0.0) + local_params(layer, t, group.tensor, spec.hidden)
    overhead = token = 0.0
    for gemm in layer_gemms(spec, layer, group):
        cost = costs.gemm_of(gemm.format, device.peak_flops.precision(format_named(gemm.format, "format").precision))
        assert cost is not None, "every table has bf16 GEMMs"
        overhead += cost.fixed_ns
        elements = cost.inputs * gemm.k + cost.outputs * gemm.n
        token += elements * TRAFFIC_BYTES * 1e9 / device.bandwidth_bytes_per_s
    found = tuple(_gemm(n, name, device, costs, group.attention_replicas) for name, n in params.items())
    return found, Folded(overhead, token / group.attention_replicas)


def _gemm(params: float, name: str, device: Device, costs: KernelCosts, replicas: int) -> Gemm:
    fmt = format_named(name, "format")
    cost = costs.gemm_of(name, device.peak_flops.precision(fmt.precision))
    assert cost is not None, "every table has bf16 GEMMs"
    peak, read = device.peak_flops.at(fmt.precision), device.bandwidth_bytes_per_s
    return Gemm(
        token_ns=2 * params * _rate_ns(peak, cost.flops) / replicas,
        weights_ns=params * float(fmt.bits) / 8 * _rate_ns(read, cost.bandwidth),
        unhidden=cost.unhidden,
    )


def head_gemm(params: float, name: str, device: Device, costs: KernelCosts, replicas: int) -> tuple[Gemm, float]:
    """The LM head as a GEMM, and its fixed time."""
    cost = costs.gemm_of(name, device.peak_flops.precision(format_named(name, "format").precision))
    return _gemm(params, name, device, costs, replicas), cost.fixed_ns if cost else 0.0


def experts(
    spec: ModelSpec, layer: Layer, device: Device, costs: KernelCosts, group: Group, imbalance: tuple[float, ...]
) -> tuple[Experts, Folded] | None:
    """Routed experts, spread over the expert ranks or each sharded over the tensor ranks; None without constants."""
    assert isinstance(layer.ffn, Moe)
    moe, name = layer.ffn, layer.formats.routed_experts
    fmt: WeightFormat = format_named(name, "format")
    cost = costs.moe_of(name, device.peak_flops.precision(fmt.precision), w4a8=device.peak_flops.fp4 > 0)
    if cost is None:
        return None
    precision: Precision = "fp8" if cost.format == "mxfp4-w4a8" else fmt.precision
    ranks = group.expert_ranks if group.experts else group.tensor
    replicas = 1 if group.experts else group.attention_replicas
    one, width = moe.expert_params(spec.hidden), moe.width / (1 if group.experts else group.tensor)
    read, peak = device.bandwidth_bytes_per_s, device.peak_flops.at(precision)
    apart = group.expert_ranks if group.experts else 1  # of the experts; sharded ones are all here
    # Tokens that a rank gets: all-to-alls bring those that pick an expert of it; without, a rank has all of them.
    received = 1 - (1 - 1 / apart) ** moe.top_k if group.exchanges else 1.0
    elements = received * moe.top_k / replicas * (2 * (moe.latent_width or spec.hidden) + 3 * width)
    found = Experts(
        experts=moe.experts + group.redundant_experts,
        top_k=moe.top_k,
        token_ns=2 * one * moe.top_k * _rate_ns(peak, cost.flops) / (ranks * replicas),
        expert_ns=one * float(fmt.bits) / 8 * _rate_ns(read, cost.bandwidth) / ranks + cost.expert_ns / apart,
        unhidden=cost.unhidden,
        imbalance=imbalance,
        spread=group.expert_ranks if group.expert_ranks > 1 else UNSET,
    )
    return found, Folded(cost.fixed_ns, cost.activations * elements * TRAFFIC_BYTES * 1e9 / read)


def full(
    spec: ModelSpec, layer: Layer, base: FullAttention, device: Device, costs: KernelCosts, group: Group
) -> FullAttention:
    """The first cache's attention of GQA and MLA with constants; `base` has the device's shares, and stays without.

    MLA takes the constants of the other kinds: its decode reads one latent, so it counts as one KV head. Pairs of
    decode cost what those of prefill do.
    """
    decode, prefill = costs.decode_of(spec.kv_type), costs.prefill_of(spec.kv_type)
    if decode is None or prefill is None or not isinstance(layer.attention, (Gqa, Mla)):
        return base
    kv_ns, share = base.kv_ns * device.share.bandwidth, device.share.flops / prefill.flops
    scores = costs.score_fs * layer.attention.heads / 1e6 / group.devices
    prefill_pair_ns = base.prefill_pair_ns * share + scores
    return msgspec.structs.replace(
        base,
        decode_pair_ns=base.decode_pair_ns * share + scores,
        prefill_pair_ns=prefill_pair_ns,
        kv_ns=0.0,
        window_tile=WINDOW_TILE if base.window_tokens else UNSET,
        decode=_decode(layer.attention, kv_ns, device, decode, group),
        prefill=_prefill(layer.attention, (kv_ns, prefill_pair_ns), device, (prefill, decode), group),
    )


def _query_ns(attention: Gqa | Mla, share: float, device: Device, group: Group) -> float:
    """Reading a token's queries and writing its outputs."""
    width = attention.heads * (attention.head_dim if isinstance(attention, Gqa) else attention.value_dim)
    return share * width * 2 * TRAFFIC_BYTES * 1e9 / (device.bandwidth_bytes_per_s * group.devices)


def _decode(attention: Gqa | Mla, kv_ns: float, device: Device, cost: DecodeCost, group: Group) -> Phase:
    heads = attention.kv_heads if isinstance(attention, Gqa) else 1
    if cost.heads_apart and isinstance(attention, Gqa) and attention.window_tokens:
        heads = attention.heads
    return Phase(
        fixed_ns=cost.fixed_ns,
        kv_ns=kv_ns / cost.bandwidth,
        token_ns=_query_ns(attention, cost.query, device, group),
        sequence_ns=cost.head_ns * -(-heads // group.tensor) / group.attention_replicas,
        span_ns=cost.span_ns,
    )


def _prefill(
    attention: Gqa | Mla,
    per: tuple[float, float],
    device: Device,
    costs: tuple[PrefillCost, DecodeCost],
    group: Group,
) -> Phase:
    """`per`: ns of a token's KV at the peak bandwidth, and of a pair.

    Tables hold no history: its KV is read at decode's bandwidth, and what the KV of new tokens takes beyond that counts
    by new tokens.
    """
    (kv_ns, pair_ns), (cost, decode) = per, costs
    new = max(0.0, 1 / cost.bandwidth - 1 / decode.bandwidth)
    block_ns, traffic_ns = cost.block_ns * attention.heads / group.tensor, _query_ns(attention, 1.0, device, group)
    cache_ns = device.costs.cache_bytes * 1e9 / device.bandwidth_bytes_per_s if device.costs else 0.0
    return Phase(
        fixed_ns=cost.fixed_ns,
        kv_ns=kv_ns * min(1 / cost.bandwidth, 1 / decode.bandwidth),
        unhidden=1.0,
        token_ns=kv_ns * new + block_ns / QUERY_TILE / (group.devices / group.tensor),
        sequence_ns=block_ns / 2 / group.attention_replicas,
        depth_tokens=cost.depth_ns / pair_ns / group.context,
        spill=Spill(held_tokens=cache_ns / traffic_ns, token_ns=cost.query * traffic_ns),
    )


def linear(attention: Kda | GatedDelta, costs: KernelCosts, group: Group) -> LinearAttention | None:
    """Linear attention by phase; None without constants. Tensor ranks split heads, attention replicas requests."""
    cost = costs.linear_of(str(type(attention).__struct_config__.tag))
    if cost is None:
        return None
    heads = (attention.heads if isinstance(attention, Kda) else attention.value_heads) / group.tensor
    heads /= group.attention_replicas
    return LinearAttention(
        token_ns=0.0,
        sequence_ns=0.0,
        decode=Phase(fixed_ns=cost.decode_fixed_ns, sequence_ns=cost.decode_head_ns * heads),
        prefill=Phase(
            fixed_ns=cost.fixed_ns,
            sequence_ns=cost.head_ns * heads,
            token_ns=cost.token_ns * heads,
            span_ns=cost.span_ns,
        ),
    )
