"""The keywords of the API: their names and types, which a checker sees and `checked` enforces at run time."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Annotated, Any, Literal, TypedDict, Union, get_args, get_origin, get_type_hints

import msgspec

from stageline.api.arguments import NAMES, one_of, plain, shown
from stageline.engine.settings import Count, Drafts, Natural, Ppm
from stageline.errors import UsageError
from stageline.plan.options import Axis, LayerBytes, Placement, TowerMode

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
    quantization: str | None  # the serving engine's own word, such as awq; None: as the checkpoint is
    hf_overrides: str | None  # JSON as vLLM's --hf-overrides takes it, of the longest context; None: none
    language_model_only: bool  # no vision tower
    tower_mode: TowerMode  # ranks divide its weights, or each of them holds it for a part of the images
    kv_cache_dtype: ElementName  # "auto": the model's
    state_dtype: ElementName
    placement: Placement
    devices_by_stage: str | None  # like "h100-sxm,l40s:2"; None: all stages have the same device
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
    activations: Literal["auto", "reserve", "static", "kv", "free"]  # "auto": the serving engine's
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
    host_step_ns: int | None  # None: the serving engine's
    host_sequence_ns: int | None
    sampling_step_ns: int
    sampling_sequence_ns: int
    front_end_ns: int | None
    ring_step_ns: int
    microbatch: int | None
    credits: int | None
    batched_tokens: int | None  # of a microbatch; None: the serving engine's, on every data-parallel rank
    serving_engine: str | None  # catalogue name or TOML file; None: the default of the device class
    max_num_seqs: int | None  # running sequences of one data-parallel rank; None: the serving engine's
    max_num_batched_tokens: int | None  # of one data-parallel rank
    max_model_len: int | Literal["auto"] | None  # longest prompt and output; auto: what fits; None: the model's
    kv_blocks: int | None  # KV blocks of every stage; None: what memory holds
    kv_cache_bytes: int | None  # memory of every device for KV and state; None: what memory_share leaves
    prefix_cache: bool | None  # None: the serving engine's default
    speculative_config: str | None  # JSON as vLLM's --speculative-config takes it; None: nothing drafts
    async_scheduling: bool | None  # None: the serving engine's default
    enforce_eager: bool  # no CUDA graphs
    cuda_graph_sizes: tuple[Count, ...]  # captured sizes; empty: the serving engine's
    cuda_graph_max: int | None  # largest captured size; None: the serving engine's


class PlanKeywords(ShapeKeywords, DesignKeywords, total=False):
    """All keywords of `plan_model`."""


class SchedulingKeywords(TypedDict, total=False):
    """The fields of `stageline.engine.settings.Scheduling` that a caller may set; None: the plan's default."""

    microbatch: Count | None
    credits: Count | None
    batched_tokens: Count | None
    max_running: Count | None
    max_num_seqs: Count | None  # running sequences of one data-parallel rank
    max_num_batched_tokens: Count | None  # of one data-parallel rank
    batching: str  # policies: a name of stageline.engine.policies
    queueing: str  # or package.module:Class
    kv: str
    balance: str
    overhead_ns: Natural
    front_end_ns: Natural
    prefix_cache: bool
    snapshot_tokens: Count
    speculate: Drafts  # draft tokens per decode step
    acceptance_ppm: Ppm  # probability that a draft is right, in parts per million
    draft_ns: Natural


_COMMANDS_NAMES = {  # what a keyword is called on the command line, and here
    "tp": "tensor_parallel", "tensor_parallel_size": "tensor_parallel", "pp": "stages",
    "pipeline_parallel_size": "stages", "dp": "replicas", "data_parallel_size": "replicas",
    "ep": "expert_parallel", "cp": "context_parallel", "context_parallel_size": "context_parallel",
    "enable_expert_parallel": "all_experts", "stage_devices": "devices_by_stage",
    "num_redundant_experts": "redundant_experts", "context": "context_tokens",
    "gpu_memory_utilization": "memory_share", "block_size": "block_tokens", "num_gpu_blocks_override": "kv_blocks",
    "kv_cache_memory_bytes": "kv_cache_bytes",
    "enable_prefix_caching": "prefix_cache", "axis_order": "axes", "hop_latency": "hop_latency_ns",
    "hop_bandwidth": "hop_bytes_per_s", "hop_jitter": "hop_jitter_ns", "host_floor": "host_floor_ns",
    "host_step": "host_step_ns", "host_sequence": "host_sequence_ns", "ring_step": "ring_step_ns",
    "sampling_step": "sampling_step_ns", "sampling_sequence": "sampling_sequence_ns",
    "acceptance": "acceptance_ppm", "draft_cost": "draft_ns", "overhead": "overhead_ns", "front_end": "front_end_ns",
    "policy": "queueing", "engine_profile": "serving_engine", "scheduler": "dask_scheduler",
    "max_cudagraph_capture_size": "cuda_graph_max", "cudagraph_capture_sizes": "cuda_graph_sizes",
}  # fmt: skip


def checked(function: Callable[..., object], given: Mapping[str, object], kind: type[Any]) -> dict[str, Any]:
    """The keywords as they are. UsageError for a name that the function does not have, and for a wrong value."""
    hints = get_type_hints(kind, include_extras=True)
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name not in hints:
            raise UsageError(f"{function.__name__} has no keyword {name!r}: {_way_out(function, name, hints)}")
        try:
            found[name] = msgspec.convert(plain(value), hints[name])
        except msgspec.ValidationError:
            reason = f"give {allowed_values(hints[name])}"
            raise UsageError(f"{function.__name__}: {name}={shown(value)}: {reason}") from None
    return found


def _way_out(function: Callable[..., object], name: str, hints: Mapping[str, object]) -> str:
    parameters = inspect.signature(function).parameters.values()
    known = [*(p.name for p in parameters if p.kind is p.KEYWORD_ONLY), *hints]
    here = _COMMANDS_NAMES.get(name, name)
    if here in known:
        return f"did you mean {here}?"
    if function.__name__ == "search" and here in ShapeKeywords.__annotations__:
        return "a search tries every division of its devices itself"
    if function.__name__ == "search" and here in SchedulingKeywords.__annotations__:
        return f"it belongs to the runs: give scheduling=stageline.Scheduling({here}=...), or several in vary="
    if here in get_type_hints(PlanKeywords):
        return f"it belongs to the plan: give {here} to plan_model"
    if here in SchedulingKeywords.__annotations__:
        return f"it belongs to the run: give {here} to run"
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean {near[0]}?" if near else f"it takes {', '.join(known)}"


def allowed_values(hint: Any) -> str:
    """What a keyword can be, in one phrase."""
    return one_of(_choices(hint))


def _choices(hint: Any) -> list[str]:
    """What a keyword can be, in words."""
    if get_origin(hint) is Annotated:
        kind, meta = get_args(hint)
        most = f" to {meta.le:,}" if meta.le is not None else ""
        return [f"{_choices(kind)[0]} from {meta.ge}{most}"]
    if get_origin(hint) is Literal:
        return [repr(choice) for choice in get_args(hint)]
    if get_origin(hint) is tuple:
        return [f"a tuple of some of {', '.join(_choices(get_args(hint)[0]))}"]
    if get_origin(hint) in (Union, UnionType):
        return [choice for part in get_args(hint) for choice in _choices(part)]
    return [NAMES[hint]]
