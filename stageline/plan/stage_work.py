"""The useful work of a stage and the peaks of its devices, from which reports compute a run's utilisation."""

from collections.abc import Sequence

from msgspec import UNSET

from stageline.cost.roofline_entry import cache_group_bytes
from stageline.hardware.device import Device
from stageline.model.attention_kind import KvCache
from stageline.model.ffn import Moe
from stageline.model.formats import weight_bytes
from stageline.model.spec import Layer, ModelSpec
from stageline.plan.memory import Memory
from stageline.plan.options import PlanOptions
from stageline.plan.placement import Layers
from stageline.plan.schema import ReadLimit, StageWork


def stage_work(spec: ModelSpec, layers: Layers, device: Device, memory: Memory, options: PlanOptions) -> StageWork:
    """FLOPs: 2 x active parameters per token, attention per query-key pair, the head per sampled row.

    The peak is dense bf16 of all devices, whatever the weight format. Every device reads its copies of weights.
    """
    group = options.group
    last = len(spec.layers) - 1
    kinds = [spec.layers[i] for i in layers]
    moes = [(x, x.ffn) for x in kinds if isinstance(x.ffn, Moe)]
    expert = sum(weight_bytes(f.expert_params(spec.hidden), x.formats.of("routed_experts")) for x, f in moes)
    copies = group.devices // (group.expert_ranks if group.experts else group.tensor)
    experts = moes[0][1].experts + group.redundant_experts if moes else 0
    embedding = memory.embedding_bytes if layers[0] == 0 and not (spec.tied and layers[-1] == last) else 0
    whole = memory.weight_bytes(layers) - embedding
    return StageWork(
        token_flops=2 * sum(t.active for x in kinds for t in x.tensors(spec.hidden)),
        pair_flops=sum(c.prefill_flops for x in kinds for c in x.attention.caches() if not _limit(spec, c)),
        row_flops=2 * spec.head().active if layers[-1] == last else 0,
        step_bytes=max(0, whole - expert * experts * copies),
        expert_bytes=expert * copies,
        experts=experts,
        experts_per_token=moes[0][1].top_k if moes else 0,
        flops_per_s=device.peak_flops.bf16 * group.devices,
        bytes_per_s=device.bandwidth_bytes_per_s * group.devices,
        read_limits=_read_limits(spec, kinds, options) or UNSET,
    )


def _limit(spec: ModelSpec, cache: KvCache) -> int:
    """The most tokens that a query reads; 0: all of the longest context."""
    return 0 if spec.context and cache.read_tokens >= spec.context else cache.read_tokens


def _read_limits(spec: ModelSpec, layers: Sequence[Layer], options: PlanOptions) -> tuple[ReadLimit, ...]:
    """FLOPs and kept bytes of the caches that queries read in part, by the most tokens that one reads."""
    found: dict[int, tuple[int, int]] = {}
    for layer, cache in ((x, c) for x in layers for c in x.attention.caches() if _limit(spec, c)):
        whole = options.whole_kv or not cache.kept_tokens
        kept = cache_group_bytes(spec, layer, cache, options.tensor_parallel) if whole and cache.owned else 0
        flops, size = found.get(cache.read_tokens, (0, 0))
        found[cache.read_tokens] = (flops + cache.prefill_flops, size + kept)
    return tuple(ReadLimit(read_tokens=n, pair_flops=f, kv_bytes=k) for n, (f, k) in sorted(found.items()))
