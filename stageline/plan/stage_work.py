"""The useful work of a stage and the peaks of its devices, from which reports compute a run's utilisation."""

from stageline.hardware.device import Device
from stageline.model.ffn import Moe
from stageline.model.formats import weight_bytes
from stageline.model.spec import ModelSpec
from stageline.plan.memory import Memory
from stageline.plan.options import PlanOptions
from stageline.plan.placement import Layers
from stageline.plan.schema import StageWork


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
        pair_flops=sum(x.attention.pair_flops()[1] for x in kinds),
        row_flops=2 * spec.head().active if layers[-1] == last else 0,
        step_bytes=max(0, whole - expert * experts * copies),
        expert_bytes=expert * copies,
        experts=experts,
        experts_per_token=moes[0][1].top_k if moes else 0,
        flops_per_s=device.peak_flops.bf16 * group.devices,
        bytes_per_s=device.bandwidth_bytes_per_s * group.devices,
    )
