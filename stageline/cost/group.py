"""The devices of one stage, and the part of a layer that each of them holds.

By default tensor ranks are neighbouring devices, and context ranks or attention replicas lie one tensor group apart.
Experts are spread over tensor x attention_replicas ranks if `experts` is set, else sharded over the tensor ranks like
all other weights.
"""

from typing import NamedTuple

from stageline.model.attention import Gqa, Mamba2
from stageline.model.ffn import Moe
from stageline.model.formats import weight_bytes
from stageline.model.spec import Layer, ModelSpec
from stageline.model.tensors import Tensor

REPLICATED = frozenset(
    {"q_a", "kv_a", "latent_norm", "qk_norm", "o_norm", "router", "shared_gate", "norms"}
    | {"down_bias", "index", "index_weights", "index_norm", "compressor", "compressor_norm"}
    | {"index_compressor", "index_compressor_norm"}
)


class Group(NamedTuple):
    """tensor x context x attention_replicas devices; of the last two at most one is above 1."""

    tensor: int = 1
    context: int = 1
    attention_replicas: int = 1  # data-parallel attention inside the stage: one replica holds a request
    experts: bool = False  # expert parallelism over tensor x attention_replicas ranks
    redundant_experts: int = 0  # copies of the hottest experts of every layer, over all expert ranks
    sequence_parallel: bool = False  # reduce-scatter and all-gather instead of all-reduce
    overlap: bool = False  # two half batches alternate, so that collectives hide behind work
    ring_step_ns: float = 0.0  # host and kernel overhead of one step of ring attention
    tensor_stride: int = 1  # devices from one tensor rank to the next
    outer_stride: int = 0  # devices from one context rank or attention replica to the next; 0: `tensor`

    @property
    def devices(self) -> int:
        """The size of the group."""
        return self.tensor * self.context * self.attention_replicas

    @property
    def expert_ranks(self) -> int:
        """Ranks that experts are spread over; 1 without expert parallelism."""
        return self.tensor * self.attention_replicas if self.experts else 1

    @property
    def exchanges(self) -> bool:
        """Whether tokens go to their experts: those are spread over ranks that hold other tokens."""
        return self.experts and self.attention_replicas > 1

    @property
    def tensor_devices(self) -> range:
        """Positions of the first tensor group's devices."""
        return range(0, self.tensor * self.tensor_stride, self.tensor_stride)

    @property
    def outer_devices(self) -> range:
        """Positions of the first tensor rank of every context rank or attention replica."""
        stride = self.outer_stride or self.tensor
        return range(0, self.context * self.attention_replicas * stride, stride)


def local_params(layer: Layer, t: Tensor, tensor: int, hidden: int) -> float:
    """Parameters of `t` on one of `tensor` ranks; not for routed experts.

    Every rank holds all of MLA's down projections, indexers, compressors, router and norms, ceil(kv_heads / ranks) KV
    heads and ceil(groups / ranks) groups of a state-space layer. Everything else is split evenly.
    """
    if t.name in REPLICATED or tensor == 1 or t in layer.extra:
        return float(t.params)
    for a in layer.attention.kinds():
        if t.name == "qkv" and isinstance(a, Gqa):
            kv_heads = -(-a.kv_heads // tensor)
            return hidden * (a.head_dim * a.heads / tensor + a.kv_projection() * kv_heads)
        if t.name == "bc" and isinstance(a, Mamba2):
            return float(2 * hidden * a.state_dim * -(-a.groups // tensor))
    return t.params / tensor


def layer_group_bytes(spec: ModelSpec, layer: Layer, group: Group) -> int:
    """Bytes of one layer's weights, summed over all devices of the group, copies included."""
    total = 0
    for t in layer.tensors(spec.hidden):
        fmt = layer.formats.of(t.weight_class)
        if t.weight_class == "routed_experts":
            copies = group.devices // (group.expert_ranks if group.experts else group.tensor)
            total += weight_bytes(t.params + _redundant_params(layer, group, spec.hidden), fmt) * copies
        else:
            each = local_params(layer, t, group.tensor, spec.hidden) * group.tensor
            total += weight_bytes(-int(-each // 1), fmt) * (group.devices // group.tensor)
    return total


def _redundant_params(layer: Layer, group: Group, hidden: int) -> int:
    return layer.ffn.expert_params(hidden) * group.redundant_experts if isinstance(layer.ffn, Moe) else 0
