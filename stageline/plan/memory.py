"""Memory of a stage: weights, KV per token, state per request, activations, and the planned requests.

Serving engines mean different things by their share of memory (`PlanOptions.activations`):

    reserve  KV = share x memory - weights; activations and runtime use what the share leaves free
    static   KV = share x memory - weights - runtime; activations use what the share leaves free (SGLang)
    kv       KV = share x memory - weights - runtime - activations (vLLM)
    free     KV = share x (memory - weights - runtime - activations) (TensorRT-LLM)
"""

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate

from stageline.cost.group import Group, layer_group_bytes
from stageline.cost.roofline_entry import cache_group_bytes
from stageline.hardware.device import Device
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
        self.kv_given = options.kv_blocks is not None or options.kv_cache_bytes is not None
        self.layer_activation_bytes = layer_activation_bytes(spec, group, options.batched_tokens)
        rows = min(options.microbatch or options.max_running or MAX_MICROBATCH, options.batched_tokens)
        self.logit_bytes = logit_bytes(spec, group, rows, options.serving.sampler_bytes if options.serving else 0)
        self.activations = options.activations
        self.engine_bytes = device.engine_bytes(group.devices)  # of one device
        self._devices = group.devices
        self.kv_share = 1.0  # of what weights, runtime and activations leave
        usable = device.usable_bytes(options.memory_share)
        if self.activations == "free":
            self.kv_share, usable = usable / device.memory_bytes, device.memory_bytes
        self.capacity_bytes = usable * group.devices
        self.memory_bytes = device.memory_bytes * group.devices
        self.weights = [nominal_layer_bytes(spec)] * count if self.nominal else _exact(spec, group)
        towers = copies if options.tower_mode == "weights" else group.devices
        self.tower_bytes = 0 if self.nominal or options.language_model_only else spec.tower_bytes() * towers
        self.embedding_bytes = 0 if self.nominal else spec.embedding_bytes() * copies + self.tower_bytes
        self.head_bytes = 0 if self.nominal else spec.head_bytes() * copies
        # a stage with both ends holds the tied weights once
        self.tied_bytes = 0 if self.nominal else spec.tied_bytes() * copies
        kept = {layer: _kept(spec, layer, options) for layer in set(spec.layers)}
        self.kept = [kept[layer] for layer in spec.layers]
        self.state = [spec.state_bytes(i) for i in range(count)]
        if (draft := options.draft) and draft.model:  # beside the last layer
            self.head_bytes += draft.weight_bytes(group)
            own = (cache for layer in draft.layers() for cache in _kept(draft.model, layer, options))
            self.kept[-1] = [*self.kept[-1], *own]
            self.state[-1] += sum(draft.model.state_bytes(i) for i in range(len(draft.layers())))
        needs = [w + self._planned_bytes([i]) for i, w in enumerate(self.weights)]
        self._needs = [0, *accumulate(needs)]
        self._weights = [0, *accumulate(self.weights)]
        self._requests = [0, *accumulate(self.request_bytes([i]) for i in range(count))]

    def activation_bytes(self, last: bool) -> int:
        """Activation bytes of one device; the stage with the `last` layer also holds logits."""
        return max(self.layer_activation_bytes, self.logit_bytes * last)

    def kept_free_bytes(self, last: bool) -> int:
        """Bytes that a stage's ledger leaves to activations and the engine; 0 if these use the reserve."""
        if self.activations == "reserve":
            return 0
        return (self.engine_bytes + self.activation_bytes(last) * (self.activations != "static")) * self._devices

    def room_bytes(self, layers: Sequence[int]) -> int:
        """What weights, activations and the engine leave of a stage for its ledger; negative if they do not fit."""
        left = self.capacity_bytes - self.weight_bytes(layers) - self.kept_free_bytes(layers[-1] == self.layers - 1)
        return left if self.kv_share == 1 else math.floor(left * self.kv_share)

    def ends_bytes(self, first: bool, last: bool) -> int:
        """Bytes of embedding and head, which come with the first and the last layer."""
        size = self.embedding_bytes * first + self.head_bytes * last
        return size - self.tied_bytes if first and last else size

    def weight_bytes(self, layers: Sequence[int]) -> int:
        """Weights of a stage with these layers, including embedding and head."""
        return sum(self.weights[i] for i in layers) + self.ends_bytes(0 in layers, self.layers - 1 in layers)

    def block_bytes(self, layers: Iterable[int]) -> int:
        """KV of one block of tokens, in caches without a window."""
        return sum(size for i in layers for most, size in self.kept[i] if not most) * self.block_tokens

    def windows(self, layers: Iterable[int]) -> tuple[KvWindow, ...]:
        """The caches with a window in these layers, by window."""
        found: dict[int, int] = {}
        for most, size in (cache for i in layers for cache in self.kept[i]):
            if most:
                found[most] = found.get(most, 0) + size * self.block_tokens
        return tuple(KvWindow(most_blocks=blocks, block_bytes=size) for blocks, size in sorted(found.items()))

    def state_bytes(self, layers: Iterable[int]) -> int:
        """State of one request."""
        return sum(self.state[i] for i in layers)

    def request_bytes(self, layers: Sequence[int], context_tokens: int | None = None) -> int:
        """KV and state of one request, at the planned context unless `context_tokens` says otherwise."""
        blocks = -(-(context_tokens or self.context_tokens) // self.block_tokens)
        kept = sum(min(blocks, most or blocks) * size for i in layers for most, size in self.kept[i])
        return kept * self.block_tokens + self.state_bytes(layers)

    def need_bytes(self, layers: Sequence[int]) -> int:
        """What a stage with these layers needs for weights, planned requests and activations."""
        need = self.weight_bytes(layers) + self._planned_bytes(layers)
        return need + self.kept_free_bytes(self.layers - 1 in layers)

    def _planned_bytes(self, layers: Sequence[int]) -> int:
        """What a stage must have left for the planned requests."""
        size = self.concurrency * self.request_bytes(layers)
        return size if self.kv_share == 1 else math.ceil(size / self.kv_share)

    def run_need_bytes(self, start: int, end: int) -> int:
        """`need_bytes` of layers start to end - 1, in O(1)."""
        need = self._needs[end] - self._needs[start] + self.ends_bytes(start == 0, end == self.layers)
        return need + self.kept_free_bytes(end == self.layers)

    def run_requests(self, start: int, end: int) -> int:
        """Requests of the planned context that a stage with layers start to end - 1 holds, in O(1)."""
        ends = self.ends_bytes(start == 0, end == self.layers) + self.kept_free_bytes(end == self.layers)
        left = self.capacity_bytes - (self._weights[end] - self._weights[start]) - ends
        room = left if self.kv_share == 1 else math.floor(left * self.kv_share)
        return room // max(1, self._requests[end] - self._requests[start])

    def fits(self, start: int, end: int) -> bool:
        """Whether layers start to end - 1 and the planned requests fit one stage."""
        return self.run_need_bytes(start, end) <= self.capacity_bytes


def nominal_layer_bytes(spec: ModelSpec) -> int:
    """The published rounded size of a layer, or else the average: ceil(all weights / layers)."""
    return spec.nominal_layer_bytes or -(-spec.weight_bytes() // len(spec.layers))


def _kept(spec: ModelSpec, layer: Layer, options: PlanOptions) -> list[tuple[int, int]]:
    """(blocks that a layer's cache keeps at most, bytes per token) of each cache, over the tensor group.

    0 blocks: no window, or one as long as the longest context.
    """
    found = []
    for cache in layer.attention.caches():
        if not cache.owned:
            continue
        tokens = 0 if options.whole_kv or (spec.context and cache.kept_tokens >= spec.context) else cache.kept_tokens
        size = cache_group_bytes(spec, layer, cache, options.tensor_parallel)
        found.append((-(-tokens // options.block_tokens), size))
    return found


def _exact(spec: ModelSpec, group: Group) -> list[int]:
    by_layer = {layer: layer_group_bytes(spec, layer, group) for layer in set(spec.layers)}
    return [by_layer[layer] for layer in spec.layers]
