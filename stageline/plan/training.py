"""Arithmetic of a training run: memory per device, model FLOPs utilisation, days and money.

Adam in mixed precision takes 16 bytes per parameter: 2 of weights, 2 of gradients, and 12 of fp32 master weights and
moments (ZeRO, arXiv 1910.02054). ZeRO stage 1 shards the 12 over the data ranks, stage 2 also gradients, stage 3 also
weights.
"""

import msgspec

from stageline.errors import UsageError
from stageline.hardware.device import Device
from stageline.model.attention import Gqa
from stageline.model.spec import ModelSpec

WEIGHT_BYTES, GRADIENT_BYTES, OPTIMISER_BYTES = 2, 2, 12
SECONDS_PER_DAY, SECONDS_PER_HOUR = 86_400, 3_600


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a training run on tp x cp x pp x dp devices."""

    tp: int = 1
    cp: int = 1
    pp: int = 1
    dp: int = 1
    zero: int = 1  # ZeRO stage, 0 to 3
    sequence_tokens: int = 8192
    batch_sequences: int = 1  # per data rank and optimiser step
    interleaved: int = 1  # model chunks per pipeline stage (virtual pipeline)
    recompute: bool = False  # keep only each layer's input and recompute its activations
    tokens: int = 0  # of the whole run
    price_per_device_hour: float = 0.0

    @property
    def devices(self) -> int:
        """Devices of the whole run."""
        return self.tp * self.cp * self.pp * self.dp


class TrainingReport(msgspec.Struct, frozen=True, kw_only=True):
    """Memory is that of the fullest device; `mfu` is useful FLOPs / bf16 peak."""

    devices: int
    parameters: int
    state_bytes: int  # weights, gradients and optimiser of the whole model, once
    weight_bytes: int
    gradient_bytes: int
    optimiser_bytes: int
    activation_bytes: int
    total_bytes: int
    usable_bytes: int
    fits: bool
    bubble_ratio: float
    mfu: float
    flops_per_token: int
    days: float
    money: float


def state_bytes(parameters: int) -> int:
    """Weights, gradients and optimiser state: 16 bytes per parameter."""
    return parameters * (WEIGHT_BYTES + GRADIENT_BYTES + OPTIMISER_BYTES)


def training_bubble_ratio(stages: int, microbatches: int, interleaved: int = 1) -> float:
    """Idle share of a step: b / (1 + b), where b = (p - 1) / (v m) is idle time over ideal time.

    p `stages`, m `microbatches`, v `interleaved` model chunks per stage.
    """
    idle = (stages - 1) / (interleaved * microbatches)
    return idle / (1 + idle)


def training_activation_bytes(spec: ModelSpec, index: int, t: Training) -> float:
    """Bytes of one layer's activations for one sequence on one device (arXiv 2205.05198, with flash attention).

    2 bytes for each input and output of a projection: 2 x tokens x (4 hidden + 2 query + kv + 3 FFN width). Tensor and
    context ranks split the tokens. With recomputation only the layer's input is kept: 2 x tokens x hidden.
    """
    layer, hidden = spec.layers[index], spec.hidden
    tokens = t.sequence_tokens / (t.tp * t.cp)
    if t.recompute:
        return 2.0 * tokens * hidden
    width = getattr(layer.ffn, "width", 4 * hidden) * getattr(layer.ffn, "top_k", 1)
    query = kv = hidden
    if isinstance(layer.attention, Gqa):
        query, kv = layer.attention.query_elements(), layer.attention.kv_elements()
    return 2.0 * tokens * (4 * hidden + 2 * query + kv + 3 * width)


def flops_per_token(spec: ModelSpec, sequence_tokens: int) -> int:
    """FLOPs of forward and backward: 3 x (2 x active parameters + attention over half the sequence on average)."""
    caches = [cache for layer in spec.layers for cache in layer.attention.caches()]
    pairs = sum(c.prefill_flops * min(sequence_tokens, 2 * c.read_tokens or sequence_tokens) for c in caches)
    return 3 * (2 * spec.active_params() + pairs // 2)


def train(spec: ModelSpec, device: Device, t: Training) -> TrainingReport:
    """The report for these options. Raises UsageError for impossible ones."""
    _check(spec, t)
    parameters = spec.total_params()
    shard = parameters / (t.tp * t.pp)
    over = t.dp * t.cp  # data ranks that hold the same weights
    weights = WEIGHT_BYTES * shard / (over if t.zero >= 3 else 1)
    gradients = GRADIENT_BYTES * shard / (over if t.zero >= 2 else 1)
    optimiser = OPTIMISER_BYTES * shard / (over if t.zero >= 1 else 1)
    layers = -(-len(spec.layers) // t.pp)
    in_flight = min(t.pp, t.batch_sequences)
    activations = in_flight * layers * max(training_activation_bytes(spec, i, t) for i in range(len(spec.layers)))
    bubble = training_bubble_ratio(t.pp, t.batch_sequences, t.interleaved)
    reached = device.share.flops * (1 - bubble) * (3 / 4 if t.recompute else 1)
    per_token = flops_per_token(spec, t.sequence_tokens)
    seconds = t.tokens * per_token / (reached * device.peak_flops.bf16 * t.devices)
    total = weights + gradients + optimiser + activations
    return TrainingReport(
        devices=t.devices, parameters=parameters, state_bytes=state_bytes(parameters), weight_bytes=round(weights),
        gradient_bytes=round(gradients), optimiser_bytes=round(optimiser), activation_bytes=round(activations),
        total_bytes=round(total), usable_bytes=device.usable_bytes(), fits=total <= device.usable_bytes(),
        bubble_ratio=bubble, mfu=reached, flops_per_token=per_token, days=seconds / SECONDS_PER_DAY,
        money=seconds / SECONDS_PER_HOUR * t.devices * t.price_per_device_hour,
    )  # fmt: skip


def _check(spec: ModelSpec, t: Training) -> None:
    names = {"dp": "replicas", "sequence_tokens": "sequence", "batch_sequences": "batch"}
    for name in ("tp", "cp", "pp", "dp", "sequence_tokens", "batch_sequences", "interleaved"):
        if getattr(t, name) < 1:
            raise UsageError(f"--{names.get(name, name)} {getattr(t, name)}: must be 1 or more")
    if not 0 <= t.zero <= 3:
        raise UsageError(f"--zero {t.zero}: ZeRO has stages 0 to 3")
    if t.pp * t.interleaved > len(spec.layers):
        raise UsageError(f"--pp {t.pp} x {t.interleaved} pieces: {spec.name} has {len(spec.layers)} layers to cut")
