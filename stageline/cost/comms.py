"""Communication of a group's devices in one layer: collectives, and ring attention for long prompts."""

from collections.abc import Iterable

from stageline.cost.collective import AlphaBeta, all_reduce, all_to_all, half, network_of
from stageline.cost.entries import Collective, CollectiveCost, Ring
from stageline.cost.group import Group
from stageline.cost.topology import domain_devices, joined, ranks_in_domain
from stageline.hardware.device import Device
from stageline.model.attention import Attention
from stageline.model.ffn import Moe
from stageline.model.formats import ELEMENT_BYTES
from stageline.model.spec import Layer, ModelSpec

DISPATCH_BYTES, COMBINE_BYTES = 1, 2  # per element: fp8 to the experts, bf16 back


def _collective(algorithms: Iterable[AlphaBeta], token_bytes: float) -> tuple[Collective, ...]:
    """One collective, by tokens instead of bytes; empty without an algorithm."""
    ways = tuple(CollectiveCost(latency_ns=a.latency_ns, token_ns=a.ns_per_byte * token_bytes) for a in algorithms)
    return (Collective(ways=ways),) if ways else ()


def collectives(spec: ModelSpec, layer: Layer, device: Device, group: Group) -> tuple[Collective, ...]:
    """The collectives of one layer: an all-reduce of tokens x hidden over the tensor ranks, after attention and FFN.

    With `sequence_parallel` each all-reduce becomes a reduce-scatter and an all-gather. Experts that are spread over
    more than the tensor ranks need dispatch and combine in place of the FFN's: each rank sends top_k copies of its part
    of the tokens, in the experts' width (latent or hidden), and gathers the results over its tensor ranks. Experts over
    the tensor ranks alone need none, because every rank has all tokens: the all-reduce adds their parts (vLLM's
    `FusedMoEParallelConfig.use_all2all_kernels`: only with data parallelism).
    """
    domain = domain_devices(device)
    reduce = all_reduce(device, group.tensor, ranks_in_domain(domain, group.tensor_devices, group.outer_devices))
    token_bytes = spec.hidden * ELEMENT_BYTES[spec.activation_type] / group.attention_replicas
    if group.sequence_parallel:
        reduced = _collective(half(reduce), token_bytes) * 2
    else:
        reduced = _collective(reduce, token_bytes)
    if not (isinstance(layer.ffn, Moe) and group.exchanges):
        return reduced * layer.parts
    ranks, k = group.expert_ranks, layer.ffn.top_k
    copies = k * (layer.ffn.latent_width or spec.hidden) / ranks
    exchange = all_to_all(
        device, ranks, k, ranks_in_domain(domain, joined(group.outer_devices, group.tensor_devices), (0,))
    )
    dispatch = _collective(exchange, copies * DISPATCH_BYTES)
    combine = _collective(exchange, copies * COMBINE_BYTES)
    after_attention = reduced * (layer.parts - 1)
    return (*after_attention, *dispatch, *combine, *_collective(half(reduce), token_bytes))


def ring(spec: ModelSpec, attention: Attention, device: Device, group: Group) -> Ring | None:
    """Ring attention over N context ranks (arXiv 2411.01783); each rank is a tensor group and uses all its links.

    KV goes round the ring if attention hides its transfer, or if it is smaller than the queries:
    T >= N C kv e / (2 q BW), or T >= kv / q x all tokens. Otherwise queries do. T: new tokens; kv, q: elements of one
    token's KV and query; e: bytes per KV element; C, BW: FLOP/s and bytes/s of a context rank. None for one rank.

    A decode step passes queries: each of N - 1 steps takes a latency and the fixed time of one more attention kernel,
    an all-to-all brings the partial outputs back in N - 1 latencies, and N kernels merge them.
    """
    n = group.context
    if n == 1:
        return None
    link = network_of(device, n, ranks_in_domain(domain_devices(device), group.outer_devices, group.tensor_devices))
    rate = link.bytes_per_s * group.tensor
    kv, query = attention.kv_elements(), attention.query_elements()
    kv_bytes, query_bytes = kv * ELEMENT_BYTES[spec.kv_type], query * ELEMENT_BYTES[spec.activation_type]
    flops_per_s = device.peak_flops.bf16 * device.share.flops * group.tensor
    byte_ns = (n - 1) / n * 1e9 / rate
    return Ring(
        kv_token_ns=byte_ns * kv_bytes,
        query_token_ns=byte_ns * 2 * query_bytes,
        steps_ns=(n - 1) * link.latency_ns + n * group.ring_step_ns,
        kv_threshold_tokens=n * flops_per_s * kv_bytes / (2 * query * rate),
        kv_share=kv / query,
        decode_ns=(n - 1) * (2.0 * link.latency_ns + _kernel_ns(spec, device)) + n * device.overhead.op_ns,
    )


def _kernel_ns(spec: ModelSpec, device: Device) -> float:
    """Fixed time of a decode attention kernel."""
    cost = device.costs.decode_of(spec.kv_type) if device.costs else None
    return cost.fixed_ns if cost else float(device.overhead.op_ns)
