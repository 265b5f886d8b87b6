"""What a plan is asked for."""

from typing import Literal

import msgspec

from stageline.cost.profile import Profile

Placement = Literal["fewest", "by-kind"]
LayerBytes = Literal["exact", "nominal"]

DEFAULT_CONTEXT_TOKENS = 8192


class PlanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The planner's settings. None: chosen by the planner, or taken from the device."""

    placement: Placement = "fewest"
    consecutive: bool = False  # by-kind only: a stage holds one run of layers
    layer_bytes: LayerBytes = "exact"
    devices: int | None = None  # per replica
    replicas: int = 1
    tensor_parallel: int = 1  # devices per stage
    context_tokens: int | None = None
    concurrency: int = 1  # requests of that context that every stage must have room for
    memory_share: float | None = None
    hop_latency_ns: int | None = None
    hop_bytes_per_s: int | None = None
    hop_jitter_ns: int = 0
    microbatch: int | None = None
    credits: int | None = None
    batched_tokens: int = 2048
    block_tokens: int = 16
    profile: Profile | None = None  # measured costs instead of the roofline
