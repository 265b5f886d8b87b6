"""The keywords of the API: their names and types, which a checker sees and `checked` enforces at run time."""

import difflib
from collections.abc import Mapping
from typing import Any, Literal, TypedDict, get_type_hints

import msgspec

from stageline.errors import UsageError
from stageline.plan.options import Axis, LayerBytes, Placement

ElementName = Literal["auto", "fp32", "bf16", "fp16", "fp8", "float32", "bfloat16", "float16", "fp8_e4m3", "fp8_e5m2"]


class ShapeKeywords(TypedDict, total=False):
    """How one replica is divided; a search tries these itself."""

    devices: int | None  # per replica; None: as few as fit
    stages: int | None  # pipeline stages per replica; None: devices / devices per stage
    replicas: int
    tensor_parallel: int
    expert_parallel: int  # ranks that experts are spread over; above tensor_parallel: replicas of attention
    context_parallel: int
    all_experts: bool  # experts over tensor_parallel x replicas, vLLM's --enable-expert-parallel


class DesignKeywords(TypedDict, total=False):
    """What a plan is asked for besides its division; see `stageline plan --help` and docs/planning.md."""

    weights: str  # format of all linear weights, such as fp8; "as-shipped": the model's
    kv_cache_dtype: ElementName  # "auto": the model's
    state_dtype: ElementName
    placement: Placement
    layer_partition: str
    chunks: int | None  # with "interleaved": runs of layers per stage
    consecutive: bool
    layer_bytes: LayerBytes
    sequence_parallel: bool
    overlap: bool
    redundant_experts: int
    expert_imbalance: float
    context_tokens: int | None
    concurrency: int  # requests of that context that every stage must have room for
    memory_share: float | None
    activations: Literal["reserve", "kv"]
    block_tokens: int | None  # None: the serving engine's
    whole_kv: bool
    axes: tuple[Axis, ...]  # innermost first; empty: the cheapest order
    devices_per_node: int | None
    scale_up: str | None  # catalogue names of networks
    scale_out: str | None
    network: str | None  # of every hop
    hop_latency_ns: int | None
    hop_bytes_per_s: int | None
    hop_jitter_ns: int
    profile: str | None  # measured costs: a file, or a name in a catalogue's profiles/
    host_floor_ns: int
    host_sequence_ns: int
    microbatch: int | None
    credits: int | None
    batched_tokens: int | None  # of a microbatch; None: the serving engine's, on every data-parallel rank
    serving_engine: str | None  # catalogue name or TOML file; None: the default of the device class
    max_num_seqs: int | None  # running sequences of one data-parallel rank; None: the serving engine's
    max_num_batched_tokens: int | None  # of one data-parallel rank
    max_model_len: int | None  # longest prompt and output together; None: the model's
    kv_blocks: int | None  # KV blocks of every stage; None: what memory holds
    prefix_cache: bool | None  # None: the serving engine's default


class PlanKeywords(ShapeKeywords, DesignKeywords, total=False):
    """All keywords of `plan_model`."""


class SchedulingKeywords(TypedDict, total=False):
    """The fields of `stageline.engine.settings.Scheduling` that a caller may set; None: the plan's default."""

    microbatch: int | None
    credits: int | None
    batched_tokens: int | None
    max_running: int | None
    max_num_seqs: int | None  # running sequences of one data-parallel rank
    max_num_batched_tokens: int | None  # of one data-parallel rank
    batching: str  # policies: a name of stageline.engine.policies
    queueing: str  # or package.module:Class
    kv: str
    balance: str
    overhead_ns: int
    prefix_cache: bool
    snapshot_tokens: int
    speculate: int  # draft tokens per decode step
    acceptance_ppm: int  # probability that a draft is right, in parts per million
    draft_ns: int


def checked(function: str, given: Mapping[str, object], kind: type[Any]) -> dict[str, Any]:
    """The keywords as they are. UsageError for a name that the function does not have, and for a wrong type."""
    hints = get_type_hints(kind)
    for name in given:
        if name not in hints:
            near = difflib.get_close_matches(name, hints, 1)
            hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(hints)}"
            raise UsageError(f"{function} has no keyword {name!r}: {hint}")
    try:
        found: dict[str, Any] = msgspec.convert(dict(given), kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{function}: {error}") from None
    return found
