"""Bytes of a shard: weights, KV per token, state per request, and what the requests that were asked for take."""

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
    """The byte columns of a model's layers under a plan's options; the sum of any run of layers in O(1)."""

    def __init__(self, spec: ModelSpec, device: Device, options: PlanOptions) -> None:
        """`options.context_tokens` None: 8,192, or the model's longest context if that is shorter."""
        count = len(spec.layers)
        group, ranks = options.group, options.tensor_parallel
        copies = group.devices // ranks  # of everything that only tensor ranks share
        self.layers = count
        self.nominal = options.layer_bytes == "nominal"
        self.context_tokens = options.context_tokens or min(DEFAULT_CONTEXT_TOKENS, spec.context or 1 << 62)
        self.concurrency = options.concurrency
        self.block_tokens = options.block_tokens
        self.reserve_bytes = device.memory_bytes - device.usable_bytes(options.memory_share)  # of one device
        self.layer_activation_bytes = layer_activation_bytes(spec, group, options.batched_tokens)
        self.logit_bytes = logit_bytes(spec, group, options.microbatch or MAX_MICROBATCH)
        self.activations = options.activations
        self._devices = group.devices
        self.capacity_bytes = device.usable_bytes(options.memory_share) * group.devices
        self.weights = [nominal_layer_bytes(spec)] * count if self.nominal else _exact(spec, group)
        self.embedding_bytes = 0 if self.nominal else spec.embedding_bytes() * copies
        self.head_bytes = 0 if self.nominal else spec.head_bytes() * copies
        if spec.tied and not self.nominal:  # one stage: the head is the embedding
            self.shared_bytes = spec.embedding_bytes() * copies
        else:
            self.shared_bytes = 0
        element = ELEMENT_BYTES[spec.kv_type]
        self.kv_token = [kv_group_elements(layer, ranks) * element for layer in spec.layers]
        self.most_blocks = [0] * count if options.whole_kv else [_window_blocks(spec, x, options) for x in spec.layers]
        self.state = [spec.state_bytes(i) for i in range(count)]
        needs = [w + self.concurrency * self.request_bytes([i]) for i, w in enumerate(self.weights)]
        self._needs = [0, *accumulate(needs)]

    def activation_bytes(self, last: bool) -> int:
        """The most that one device of a stage holds between operations; logits on the stage with the last layer."""
        return max(self.layer_activation_bytes, self.logit_bytes * last)

    def kept_free_bytes(self, last: bool) -> int:
        """What a stage's ledger leaves to activations: nothing where they have the reserve."""
        return self.activation_bytes(last) * self._devices if self.activations == "kv" else 0

    def ends_bytes(self, first: bool, last: bool) -> int:
        """Embedding and head of a stage that holds the first layer, the last, or both."""
        size = self.embedding_bytes * first + self.head_bytes * last
        return size - self.shared_bytes if first and last else size

    def weight_bytes(self, layers: Sequence[int]) -> int:
        """Weights of a stage, embedding and head included where they sit."""
        return sum(self.weights[i] for i in layers) + self.ends_bytes(0 in layers, self.layers - 1 in layers)

    def block_bytes(self, layers: Iterable[int]) -> int:
        """KV of one block of tokens, layers without a window."""
        return sum(self.kv_token[i] for i in layers if not self.most_blocks[i]) * self.block_tokens

    def windows(self, layers: Iterable[int]) -> tuple[KvWindow, ...]:
        """Layers that keep no more of a sequence than their window, by window."""
        found: dict[int, int] = {}
        for i in layers:
            if self.most_blocks[i]:
                found[self.most_blocks[i]] = found.get(self.most_blocks[i], 0) + self.kv_token[i] * self.block_tokens
        return tuple(KvWindow(most_blocks=blocks, block_bytes=size) for blocks, size in sorted(found.items()))

    def state_bytes(self, layers: Iterable[int]) -> int:
        """State of one request."""
        return sum(self.state[i] for i in layers)

    def request_bytes(self, layers: Sequence[int], context_tokens: int | None = None) -> int:
        """KV and state of one request at the asked-for context, or at another."""
        blocks = -(-(context_tokens or self.context_tokens) // self.block_tokens)
        kept = sum(min(blocks, self.most_blocks[i] or blocks) * self.kv_token[i] for i in layers)
        return kept * self.block_tokens + self.state_bytes(layers)

    def need_bytes(self, layers: Sequence[int]) -> int:
        """Weights and the asked-for requests of any set of layers."""
        need = self.weight_bytes(layers) + self.concurrency * self.request_bytes(layers)
        return need + self.kept_free_bytes(self.layers - 1 in layers)

    def run_need_bytes(self, start: int, end: int) -> int:
        """`need_bytes` of layers start..end-1, in O(1)."""
        need = self._needs[end] - self._needs[start] + self.ends_bytes(start == 0, end == self.layers)
        return need + self.kept_free_bytes(end == self.layers)

    def fits(self, start: int, end: int) -> bool:
        """Whether layers start..end-1 and the asked-for requests fit one stage."""
        return self.run_need_bytes(start, end) <= self.capacity_bytes


def nominal_layer_bytes(spec: ModelSpec) -> int:
    """The published round number, or the average: all weights over the number of layers, rounded up."""
    return spec.nominal_layer_bytes or -(-spec.weight_bytes() // len(spec.layers))


def _window_blocks(spec: ModelSpec, layer: Layer, options: PlanOptions) -> int:
    """Blocks that a window reaches over; 0: no window, or none shorter than the longest context."""
    tokens = layer.attention.window_tokens if isinstance(layer.attention, Gqa) else 0
    return -(-tokens // options.block_tokens) if not spec.context or tokens < spec.context else 0


def _exact(spec: ModelSpec, group: Group) -> list[int]:
    by_layer = {layer: layer_group_bytes(spec, layer, group) for layer in set(spec.layers)}
    return [by_layer[layer] for layer in spec.layers]
