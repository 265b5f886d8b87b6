"""Memory of a stage: weights, KV per token, state per request, activations, and the planned requests."""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from stageline.cost.group import Group, layer_group_bytes
from stageline.cost.roofline_entry import kv_group_elements
from stageline.hardware.device import Device
from stageline.model.attention import Gqa
from stageline.model.formats import ELEMENT_BYTES
from stageline.model.spec import Layer, ModelSpec
from stageline.plan.activations import layer_activation_bytes, logit_bytes
from stageline.plan.options import DEFAULT_CONTEXT_TOKENS, MAX_MICROBATCH, PlanOptions
from stageline.plan.schema import KvWindow


class Memory:
    """Bytes of a model's layers under the options of a plan; of a whole stage, unless a size says otherwise."""

    def __init__(self, spec: ModelSpec, device: Device, options: PlanOptions) -> None:
        """`options.context_tokens` None: 8,192 tokens, or the model's longest context if that is shorter."""
        count = len(spec.layers)
        group, ranks = options.group, options.tensor_parallel
        copies = group.devices // ranks  # of weights that only tensor ranks split
        self.layers = count
        self.nominal = options.layer_bytes == "nominal"
        self.context_tokens = options.context_tokens or min(DEFAULT_CONTEXT_TOKENS, spec.context or 1 << 62)
        self.concurrency = options.concurrency
        self.block_tokens = options.block_tokens
        self.reserve_bytes = device.memory_bytes - device.usable_bytes(options.memory_share)  # of one device
        self.layer_activation_bytes = layer_activation_bytes(spec, group, options.batched_tokens)
        self.logit_bytes = logit_bytes(spec, group, options.microbatch or MAX_MICROBATCH)
        self.activations = options.activations
        self.engine_bytes = device.engine_bytes(group.devices)  # of one device
        self._devices = group.devices
        self.capacity_bytes = device.usable_bytes(options.memory_share) * group.devices
        self.weights = [nominal_layer_bytes(spec)] * count if self.nominal else _exact(spec, group)
        self.embedding_bytes = 0 if self.nominal else spec.embedding_bytes() * copies
        self.head_bytes = 0 if self.nominal else spec.head_bytes() * copies
        if spec.tied and not self.nominal:  # a stage with both ends holds the tied weights once
            self.tied_bytes = spec.embedding_bytes() * copies
        else:
            self.tied_bytes = 0
        element = ELEMENT_BYTES[spec.kv_type]
        self.kv_token = [kv_group_elements(layer, ranks) * element for layer in spec.layers]
        self.most_blocks = [0] * count if options.whole_kv else [_window_blocks(spec, x, options) for x in spec.layers]
        self.state = [spec.state_bytes(i) for i in range(count)]
        needs = [w + self.concurrency * self.request_bytes([i]) for i, w in enumerate(self.weights)]
        self._needs = [0, *accumulate(needs)]

    def activation_bytes(self, last: bool) -> int:
        """Activation bytes of one device; the stage with the `last` layer also holds logits."""
        return max(self.layer_activation_bytes, self.logit_bytes * last)

    def kept_free_bytes(self, last: bool) -> int:
        """Bytes that a stage's ledger leaves to activations and the engine; 0 if these use the reserve."""
        each = self.activation_bytes(last) + self.engine_bytes
        return each * self._devices if self.activations == "kv" else 0

    def ends_bytes(self, first: bool, last: bool) -> int:
        """Bytes of embedding and head, which come with the first and the last layer."""
        size = self.embedding_bytes * first + self.head_bytes * last
        return size - self.tied_bytes if first and last else size

    def weight_bytes(self, layers: Sequence[int]) -> int:
        """Weights of a stage with these layers, including embedding and head."""
        return sum(self.weights[i] for i in layers) + self.ends_bytes(0 in layers, self.layers - 1 in layers)

    def block_bytes(self, layers: Iterable[int]) -> int:
        """KV of one block of tokens, in the layers without a window."""
        return sum(self.kv_token[i] for i in layers if not self.most_blocks[i]) * self.block_tokens

    def windows(self, layers: Iterable[int]) -> tuple[KvWindow, ...]:
        """The sliding-window layers among these, by window."""
        found: dict[int, int] = {}
        for i in layers:
            if self.most_blocks[i]:
                found[self.most_blocks[i]] = found.get(self.most_blocks[i], 0) + self.kv_token[i] * self.block_tokens
        return tuple(KvWindow(most_blocks=blocks, block_bytes=size) for blocks, size in sorted(found.items()))

    def state_bytes(self, layers: Iterable[int]) -> int:
        """State of one request."""
        return sum(self.state[i] for i in layers)

    def request_bytes(self, layers: Sequence[int], context_tokens: int | None = None) -> int:
        """KV and state of one request, at the planned context unless `context_tokens` says otherwise."""
        blocks = -(-(context_tokens or self.context_tokens) // self.block_tokens)
        kept = sum(min(blocks, self.most_blocks[i] or blocks) * self.kv_token[i] for i in layers)
        return kept * self.block_tokens + self.state_bytes(layers)

    def need_bytes(self, layers: Sequence[int]) -> int:
        """What a stage with these layers needs for weights, planned requests and activations."""
        need = self.weight_bytes(layers) + self.concurrency * self.request_bytes(layers)
        return need + self.kept_free_bytes(self.layers - 1 in layers)

    def run_need_bytes(self, start: int, end: int) -> int:
        """`need_bytes` of layers start to end - 1, in O(1)."""
        need = self._needs[end] - self._needs[start] + self.ends_bytes(start == 0, end == self.layers)
        return need + self.kept_free_bytes(end == self.layers)

    def fits(self, start: int, end: int) -> bool:
        """Whether layers start to end - 1 and the planned requests fit one stage."""
        return self.run_need_bytes(start, end) <= self.capacity_bytes


def nominal_layer_bytes(spec: ModelSpec) -> int:
    """The published rounded size of a layer, or else the average: ceil(all weights / layers)."""
    return spec.nominal_layer_bytes or -(-spec.weight_bytes() // len(spec.layers))


def _window_blocks(spec: ModelSpec, layer: Layer, options: PlanOptions) -> int:
    """Blocks that a layer's window spans; 0: no window, or one as long as the longest context."""
    tokens = layer.attention.window_tokens if isinstance(layer.attention, Gqa) else 0
    return -(-tokens // options.block_tokens) if not spec.context or tokens < spec.context else 0


def _exact(spec: ModelSpec, group: Group) -> list[int]:
    by_layer = {layer: layer_group_bytes(spec, layer, group) for layer in set(spec.layers)}
    return [by_layer[layer] for layer in spec.layers]
