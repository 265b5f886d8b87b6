"""The coefficients of a `Roofline` entry, from a shard's layers and a device.

Each operation takes max(FLOPs / (peak x share), bytes / (bandwidth x share)) on one device of the group. A GEMM of P
weights takes 2 P FLOPs per token and reads its weights once per step. GEMMs of one weight format have the same ridge
point and are added up. The bytes of norms and activations count where kernels have constants of their own; elsewhere,
and for the embedding look-up, the overhead per operation covers them. Tokens are counted over the whole group;
attention replicas split them evenly.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import UNSET

from stageline.cost import kernel_entry
from stageline.cost.comms import collectives, ring
from stageline.cost.entries import Experts, FullAttention, Gemm, Graphs, LayerGroup, LinearAttention, LmHead, Roofline
from stageline.cost.group import Group, local_params
from stageline.cost.imbalance import imbalance_factors
from stageline.hardware.device import Device
from stageline.model.attention import GatedDelta, Kda
from stageline.model.attention_kind import KvCache
from stageline.model.ffn import Dense, Moe
from stageline.model.formats import ELEMENT_BYTES, WEIGHT_FORMATS, WeightFormat, format_named
from stageline.model.spec import CONV_STATE_BYTES, Layer, ModelSpec

# Kernels that a layer launches, for the overhead per operation. Assumed: one per projection or fused kernel.
ATTENTION_OPS = {"gqa": 4, "mla": 7, "compressed": 8, "none": 0}
ATTENTION_OPS |= {"kda": 6, "gated-delta": 6, "mamba": 7, "mamba2": 5, "lightning": 5}
ATTENTION_OPS["parallel"] = ATTENTION_OPS["gqa"] + ATTENTION_OPS["mamba2"] + 1  # both, and their sum
DENSE_OPS, MOE_OPS, SHARED_OPS, LATENT_OPS, INDEX_OPS = 3, 6, 3, 2, 4


class CapturedSizes(NamedTuple):
    """The CUDA graphs of a serving engine; see `stageline.cost.entries.Graphs`."""

    sizes: tuple[int, ...]
    op_ns: float  # host time per operation of a step that runs eager
    decode_only: bool = False
    exact: bool = False


class HostOverhead(NamedTuple):
    """Host time of a step: max(device time, floor_ns) + sequence_ns x sequences + step_ns.

    `hidden`: the sequences' and the step's time overlap with the devices. `graphs`: what launching kernels takes.
    """

    floor_ns: float = 0.0
    sequence_ns: float = 0.0
    step_ns: float = 0.0
    hidden: bool = False
    graphs: CapturedSizes | None = None


class Rates(NamedTuple):
    """The rates that one device of a group reaches."""

    device: Device
    group: Group

    def flops_ns(self, flops: float, fmt: WeightFormat, ranks: float = 1) -> float:
        """Time to compute FLOPs that are split over `ranks`."""
        return flops * 1e9 / (self.device.peak_flops.at(fmt.precision) * self.device.share.flops * ranks)

    def bytes_ns(self, size: float, ranks: float = 1) -> float:
        """Time to read bytes that are split over `ranks`."""
        return size * 1e9 / (self.device.bandwidth_bytes_per_s * self.device.share.bandwidth * ranks)

    def weights_ns(self, params: float, fmt: WeightFormat) -> float:
        """Time to read `params` weights on one device, scales included."""
        return self.bytes_ns(params * float(fmt.bits) / 8)


ATTENTION_FORMAT = WEIGHT_FORMATS["bf16"]  # attention multiplies in bf16 whatever the cache is stored in


def roofline_entry(
    spec: ModelSpec,
    layers: Sequence[int],
    device: Device,
    group: Group = Group(),  # noqa: B008  (immutable)
    head: bool = False,
    alpha: float = 0.0,
    host: HostOverhead = HostOverhead(),  # noqa: B008
) -> Roofline:
    """The cost entry of a visit to these layers on a group; `head`: with the LM head.

    `alpha`: exponent of expert popularity; 0 is uniform.
    """
    rates = Rates(device, group)
    kinds = Counter(spec.layers[i] for i in layers)
    groups = tuple(_group(spec, layer, count, rates, alpha) for layer, count in kinds.items())
    return Roofline(
        groups=groups,
        head=_head(spec, rates) if head else None,
        context_ranks=group.context,
        overlap=group.overlap,
        floor_ns=host.floor_ns,
        sequence_ns=host.sequence_ns,
        step_ns=host.step_ns,
        host_hidden=True if host.hidden else UNSET,
        ranks=group.attention_replicas if group.attention_replicas > 1 else UNSET,
        graphs=_graphs(spec, layers, group, host.graphs, head=head) if host.graphs else UNSET,
    )


def _graphs(spec: ModelSpec, layers: Sequence[int], group: Group, captured: CapturedSizes, *, head: bool) -> Graphs:
    """What launching the kernels of these layers takes: an operation each, collectives and the head included."""
    collectives = 2 if group.devices > 1 else 0  # after attention and after the FFN
    kernels = sum(operations(spec.layers[i]) + collectives for i in layers) + head
    return Graphs(
        sizes=captured.sizes,
        eager_ns=captured.op_ns * kernels,
        decode_only=captured.decode_only,
        exact=captured.exact,
    )


def _group(spec: ModelSpec, layer: Layer, count: int, rates: Rates, alpha: float) -> LayerGroup:
    if rates.device.costs:
        return _kernel_group(spec, layer, count, rates, alpha)
    overhead = rates.device.overhead
    fitted = overhead.moe_layer_ns if isinstance(layer.ffn, Moe) else overhead.dense_layer_ns
    full = _full(spec, layer, rates)
    return LayerGroup(
        layers=count,
        overhead_ns=float(fitted + overhead.op_ns * operations(layer)),
        gemms=_gemms(spec, layer, rates),
        experts=_experts(spec, layer, rates, alpha),
        attention=full[0] if full else None,
        linear=_linear(spec, layer, rates) if any(layer.attention.state_elements()) else None,
        collectives=collectives(spec, layer, rates.device, rates.group),
        more_attention=tuple(full[1:]) or UNSET,
    )


def _kernel_group(spec: ModelSpec, layer: Layer, count: int, rates: Rates, alpha: float) -> LayerGroup:
    """With the constants of the device's kernels; what they lack has the device's shares of its peaks."""
    device, group, costs = rates.device, rates.group, rates.device.costs
    assert costs is not None
    gemms, folded = kernel_entry.gemms(spec, layer, device, costs, group)
    rest = kernel_entry.elementwise(spec, layer, device, group)
    overhead, token_ns = rest.overhead_ns + folded.overhead_ns, rest.token_ns + folded.token_ns
    experts = _experts(spec, layer, rates, alpha)
    if experts:
        measured = kernel_entry.experts(spec, layer, device, costs, group, experts.imbalance)
        overhead += measured[1].overhead_ns if measured else device.overhead.op_ns * MOE_OPS
        token_ns += measured[1].token_ns if measured else 0.0
        experts = measured[0] if measured else experts
    full = _full(spec, layer, rates)
    first = kernel_entry.full(spec, layer, full[0], device, costs, group) if full else None
    linear = _linear(spec, layer, rates) if any(layer.attention.state_elements()) else None
    if isinstance(layer.attention, (Kda, GatedDelta)):
        linear = kernel_entry.linear(layer.attention, costs, group) or linear
    return LayerGroup(
        layers=count, overhead_ns=overhead, gemms=gemms, experts=experts, attention=first, linear=linear,
        transfer_token_ns=token_ns, collectives=collectives(spec, layer, device, group),
        more_attention=tuple(full[1:]) or UNSET,
    )  # fmt: skip


def operations(layer: Layer) -> int:
    """The number of kernels that a layer launches."""
    ops = layer.parts + ATTENTION_OPS[str(type(layer.attention).__struct_config__.tag)]  # a norm before each part
    ops += INDEX_OPS * (getattr(layer.attention, "index_heads", 0) > 0)
    if not isinstance(layer.ffn, Moe):
        return ops + DENSE_OPS * isinstance(layer.ffn, Dense)
    return ops + MOE_OPS + SHARED_OPS * (layer.ffn.shared_width > 0) + LATENT_OPS * (layer.ffn.latent_width > 0)


def _gemms(spec: ModelSpec, layer: Layer, rates: Rates) -> tuple[Gemm, ...]:
    """One GEMM per weight format, of all weights on one device that every token uses."""
    params: dict[WeightFormat, float] = {}
    for t in layer.tensors(spec.hidden):
        if t.weight_class not in ("routed_experts", "norms"):
            fmt = layer.formats.of(t.weight_class)
            params[fmt] = params.get(fmt, 0.0) + local_params(layer, t, rates.group.tensor, spec.hidden)
    replicas = rates.group.attention_replicas
    return tuple(
        Gemm(token_ns=rates.flops_ns(2 * n, fmt, replicas), weights_ns=rates.weights_ns(n, fmt))
        for fmt, n in params.items()
        if n
    )


def _experts(spec: ModelSpec, layer: Layer, rates: Rates, alpha: float) -> Experts | None:
    """Routed experts: spread over the expert ranks, or each sharded over the tensor ranks.

    Under uniform routing both take the same time. A redundant copy is read like one more expert.
    """
    if not isinstance(layer.ffn, Moe):
        return None
    group, moe = rates.group, layer.ffn
    fmt, one = layer.formats.of("routed_experts"), moe.expert_params(spec.hidden)
    ranks = group.expert_ranks if group.experts else group.tensor
    replicas = 1 if group.experts else group.attention_replicas
    return Experts(
        experts=moe.experts + group.redundant_experts,
        top_k=moe.top_k,
        token_ns=rates.flops_ns(2 * one * moe.top_k, fmt, ranks * replicas),
        expert_ns=rates.weights_ns(one, fmt) / ranks,
        imbalance=imbalance_factors(moe.experts, moe.top_k, group.expert_ranks, alpha, group.redundant_experts),
        spread=group.expert_ranks if group.expert_ranks > 1 else UNSET,
    )


def _full(spec: ModelSpec, layer: Layer, rates: Rates) -> list[FullAttention]:
    """Full attention, cache by cache.

    Tensor ranks split heads, attention replicas requests, context ranks pairs and KV. Every tensor rank runs the whole
    indexer. Only the first cache goes round the ring of context ranks.
    """
    group = rates.group
    found = []
    for i, cache in enumerate(layer.attention.caches()):
        fmt = WEIGHT_FORMATS[cache.precision]
        ranks = group.devices if cache.elements else group.devices // group.tensor
        if not cache.decode_flops:
            continue
        found.append(
            FullAttention(
                decode_pair_ns=rates.flops_ns(cache.decode_flops, fmt, ranks),
                prefill_pair_ns=rates.flops_ns(cache.prefill_flops, fmt, ranks),
                kv_ns=rates.bytes_ns(cache_group_bytes(spec, layer, cache, group.tensor), group.devices),
                window_tokens=cache.read_tokens,
                ring=ring(spec, layer.attention, rates.device, group) if i == 0 else None,
            )
        )
    return found


def cache_group_bytes(spec: ModelSpec, layer: Layer, cache: KvCache, ranks: int) -> int:
    """Bytes per token of a cache, summed over a tensor group: each rank holds MLA's whole latent, or its KV heads."""
    return cache.token_bytes(ELEMENT_BYTES[spec.kv_type]) * layer.attention.copies(ranks)


def _linear(spec: ModelSpec, layer: Layer, rates: Rates) -> LinearAttention:
    """Linear attention: the FLOPs of updating and reading the recurrent state.

    A step reads and writes the state of each sequence once. Tensor ranks split the heads and with them the state,
    attention replicas the requests.
    """
    ranks = rates.group.tensor * rates.group.attention_replicas
    recurrent, conv = layer.attention.state_elements()
    size = recurrent * ELEMENT_BYTES[spec.state_type] + conv * CONV_STATE_BYTES
    return LinearAttention(
        token_ns=rates.flops_ns(layer.attention.state_flops(), ATTENTION_FORMAT, ranks),
        sequence_ns=rates.bytes_ns(2 * size, ranks),
    )


def _head(spec: ModelSpec, rates: Rates) -> LmHead:
    """The LM head: tensor ranks split the vocabulary, attention replicas the rows."""
    name = spec.formats.embedding if spec.tied else spec.formats.head
    fmt, params = format_named(name, "head"), spec.vocab * spec.hidden / rates.group.tensor
    if rates.device.costs:
        gemm, fixed_ns = kernel_entry.head_gemm(
            params, name, rates.device, rates.device.costs, rates.group.attention_replicas
        )
        return LmHead(row_ns=gemm.token_ns, weights_ns=gemm.weights_ns, overhead_ns=fixed_ns)
    return LmHead(
        row_ns=rates.flops_ns(2 * params, fmt, rates.group.attention_replicas),
        weights_ns=rates.weights_ns(params, fmt),
        overhead_ns=float(rates.device.overhead.op_ns),
    )
