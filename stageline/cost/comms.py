"""What the devices of a group tell each other in one layer: collectives by tokens, and the ring of long prompts."""

from collections.abc import Iterable

from stageline.cost.collective import AlphaBeta, all_reduce, all_to_all, half, network_of
from stageline.cost.entries import Collective, CollectiveCost, Ring
from stageline.cost.group import Group
from stageline.cost.topology import domain_devices, joined, ranks_in_domain
from stageline.hardware.device import Device
from stageline.model.attention import Gqa, Mla
from stageline.model.ffn import Moe
from stageline.model.formats import ELEMENT_BYTES
from stageline.model.spec import Layer, ModelSpec

DISPATCH_BYTES, COMBINE_BYTES = 1, 2  # per element: fp8 to the experts, bf16 back


def _ways(lines: Iterable[AlphaBeta], token_bytes: float) -> tuple[Collective, ...]:
    ways = tuple(CollectiveCost(latency_ns=line.latency_ns, token_ns=line.ns_per_byte * token_bytes) for line in lines)
    return (Collective(ways=ways),) if ways else ()


def collectives(spec: ModelSpec, layer: Layer, device: Device, group: Group) -> tuple[Collective, ...]:
    """Per layer: an all-reduce after attention and one after the FFN over the tensor ranks, of tokens x hidden.

    With `sequence_parallel` each is a reduce-scatter and an all-gather. With expert parallelism the FFN's is replaced
    by dispatch and combine: each rank sends top_k copies of its share of the tokens, in the width that the experts
    live in, and gathers the result over its tensor ranks.
    """
    domain = domain_devices(device)
    reduce = all_reduce(device, group.tensor, ranks_in_domain(domain, group.tensor_devices, group.outer_devices))
    token_bytes = spec.hidden * ELEMENT_BYTES[spec.activation_type] / group.attention_replicas
    if group.sequence_parallel:
        one = _ways(half(reduce), token_bytes) * 2
    else:
        one = _ways(reduce, token_bytes)
    if not (isinstance(layer.ffn, Moe) and group.expert_ranks > 1):
        return one * 2
    ranks, k = group.expert_ranks, layer.ffn.top_k
    copies = k * (layer.ffn.latent_width or spec.hidden) / ranks
    lines = all_to_all(
        device, ranks, k, ranks_in_domain(domain, joined(group.outer_devices, group.tensor_devices), (0,))
    )
    there, back = _ways(lines, copies * DISPATCH_BYTES), _ways(lines, copies * COMBINE_BYTES)
    return (*one, *there, *back, *_ways(half(reduce), token_bytes))


def ring(spec: ModelSpec, attention: Gqa | Mla, device: Device, group: Group) -> Ring | None:
    """Ring attention over the context ranks (arXiv 2411.01783), every rank a tensor group with all its links.

    KV hides behind attention iff T >= N C kv e / (2 q BW), where kv and q are the elements of a token's KV and query,
    T the new tokens, C FLOP/s and BW bytes/s of a context rank; it is passed then, or if T >= kv / q of all tokens.
    """
    n = group.context
    if n == 1:
        return None
    link = network_of(device, n, ranks_in_domain(domain_devices(device), group.outer_devices, group.tensor_devices))
    rate = link.bytes_per_s * group.tensor
    width = attention.head_dim if isinstance(attention, Gqa) else attention.nope_dim + attention.rope_dim
    kv, query = attention.kv_elements(), attention.heads * width
    kv_bytes, query_bytes = kv * ELEMENT_BYTES[spec.kv_type], query * ELEMENT_BYTES[spec.activation_type]
    flops_per_s = device.peak_flops.bf16 * device.share.flops * group.tensor
    share = (n - 1) / n * 1e9 / rate
    return Ring(
        kv_token_ns=share * kv_bytes,
        query_token_ns=share * 2 * query_bytes,
        steps_ns=(n - 1) * link.latency_ns + n * group.ring_step_ns,
        kv_threshold_tokens=n * flops_per_s * kv_bytes / (2 * query * rate),
        kv_share=kv / query,
        decode_ns=2.0 * (n - 1) * link.latency_ns,
    )
