"""The flags of `stageline plan`, and the planner's options that they make. vLLM's names work as synonyms."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, cast

from cyclopts import Parameter

from stageline.catalog.loader import Catalog
from stageline.cli.lookup import find_profile
from stageline.cost.efficiencies import Efficiencies
from stageline.cost.profile import Profile
from stageline.cost.roofline_entry import HostOverhead
from stageline.errors import UsageError
from stageline.hardware.device import Device, Network, on_topology
from stageline.model.spec import ElementType
from stageline.plan.options import AXES, Axis, LayerBytes, Placement, PlanOptions
from stageline.units import parse_duration_ns, parse_rate_bytes_per_s, parse_tokens

MAX_COUNT = 1 << 32
MAX_EXPONENT = 10.0
CacheType = Literal["auto", "fp32", "bf16", "fp16", "fp8", "float32", "bfloat16", "float16", "fp8_e4m3", "fp8_e5m2"]
SYNONYMS: dict[str, ElementType] = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
}


def _flag(text: str, *names: str) -> Parameter:
    """A flag with its help, and other names for it."""
    return Parameter(name=names or None, help=text, negative="")


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFlags:
    """What `stageline plan` can be told."""

    placement: Annotated[
        Placement,
        _flag(
            "fewest: fewest devices, consecutive layers, balanced; by-kind: the published rule; "
            "interleaved: --chunks runs of layers per stage."
        ),
    ] = "fewest"
    chunks: Annotated[int | None, _flag("With interleaved: runs of layers per stage (default 2).")] = None
    consecutive: Annotated[bool, _flag("With by-kind: a stage holds consecutive layers only.")] = False
    layer_bytes: Annotated[LayerBytes, _flag("exact: real bytes; nominal: one round number for every layer.")] = "exact"
    devices: Annotated[int | None, _flag("Devices per replica (default: as few as fit).")] = None
    replicas: Annotated[
        int, _flag("Copies of the pipeline behind one router.", "--replicas", "--data-parallel-size")
    ] = 1
    tensor_parallel: Annotated[int, _flag("Devices per stage.", "--tensor-parallel-size", "--tp")] = 1
    expert_parallel: Annotated[
        int, _flag("Ranks that experts are spread over; past --tp they are replicas of attention.", "--ep")
    ] = 1
    all_experts: Annotated[
        bool, _flag("Experts over tensor ranks x --data-parallel-size, as vLLM does.", "--enable-expert-parallel")
    ] = False
    context_parallel: Annotated[
        int, _flag("Ranks that share a prompt and its KV.", "--cp", "--context-parallel-size")
    ] = 1
    sequence_parallel: Annotated[bool, _flag("Reduce-scatter and all-gather instead of all-reduce.")] = False
    overlap: Annotated[bool, _flag("Collectives hide behind the work of another half batch.")] = False
    expert_imbalance: Annotated[
        float, _flag("Exponent of expert popularity (1.01-1.2 is usual); the most loaded rank decides. 0: uniform.")
    ] = 0.0
    redundant_experts: Annotated[
        int,
        _flag(
            "Copies of the hottest experts of every layer, over all expert ranks together.",
            "--redundant-experts",
            "--num-redundant-experts",
        ),
    ] = 0
    host_floor: Annotated[str, _flag("Shortest step that the host manages (28ms).")] = "0ns"
    host_sequence: Annotated[str, _flag("Host time per sequence of a step (340us).")] = "0ns"
    profile: Annotated[
        str | None, _flag("Measured costs, made by stageline calibrate: a file, or a name in a --catalog's profiles/.")
    ] = None
    stages: Annotated[
        int | None,
        _flag(
            "Pipeline stages per replica: --devices divided by devices per stage.", "--pipeline-parallel-size", "--pp"
        ),
    ] = None
    context: Annotated[
        str | None, _flag("Tokens per request that room is computed for (8192, 128K).", "--context", "--max-model-len")
    ] = None
    concurrency: Annotated[int, _flag("Requests of that context that every stage must have room for.")] = 1
    weights: Annotated[str, _flag("Format of all linear weights: as-shipped, bf16, fp8, int8, int4, mxfp4, nvfp4.")] = (
        "as-shipped"
    )
    kv_cache_dtype: Annotated[CacheType, _flag("Type of the KV cache (auto: the model's).")] = "auto"
    state_dtype: Annotated[CacheType, _flag("Type of linear attention's recurrent state (auto: the model's).")] = "auto"
    axis_order: Annotated[
        str | None, _flag("Axes from neighbouring devices outwards: cp,tp,pp (default: the cheapest order).")
    ] = None
    devices_per_node: Annotated[int | None, _flag("Devices that share the scale-up link.")] = None
    scale_up: Annotated[str | None, _flag("Catalogue name of the network inside a node.")] = None
    scale_out: Annotated[str | None, _flag("Catalogue name of the network across nodes.")] = None
    network: Annotated[str | None, _flag("Catalogue name of the network of every hop (default: the device's).")] = None
    hop_latency: Annotated[str | None, _flag("Latency of every hop (2us).")] = None
    hop_bandwidth: Annotated[str | None, _flag("Bandwidth of every hop (300GB/s).")] = None
    hop_jitter: Annotated[str, _flag("Largest jitter of every hop.")] = "0ns"
    memory_share: Annotated[
        float | None,
        _flag("Usable share of memory (default: wafers 1.0, GPUs 0.9).", "--memory-share", "--gpu-memory-utilization"),
    ] = None
    activations: Annotated[
        Literal["reserve", "kv"],
        _flag("What activations take: reserve: memory that --memory-share leaves; kv: memory of the KV ledger."),
    ] = "reserve"
    microbatch: Annotated[
        int | None, _flag("Nominal and largest number of sequences in a microbatch.", "--microbatch", "--max-num-seqs")
    ] = None
    credits_: Annotated[
        int | None, _flag("Microbatches in flight per replica (default: max(stages, ceil(L/T))).", "--credits")
    ] = None
    batched_tokens: Annotated[
        int, _flag("Largest number of new tokens in a microbatch.", "--batched-tokens", "--max-num-batched-tokens")
    ] = 2048
    block_tokens: Annotated[int, _flag("Tokens per KV block.", "--block-tokens", "--block-size")] = 16
    whole_kv: Annotated[
        bool, _flag("Ledgers count the whole context of sliding-window layers too; --prefix-cache needs that.")
    ] = False
    catalog: Annotated[
        tuple[Path, ...], _flag("Directories with your own models/, devices/, links/ and profiles/.")
    ] = ()


def options_of(f: PlanFlags, shelf: Catalog) -> PlanOptions:
    """Checked options. Raises UsageError naming the flag."""
    link = shelf.link(f.network).network if f.network else None
    context = parse_tokens(f.context, "--context") if f.context is not None else None
    profile = find_profile(f.profile, f.catalog) if f.profile else None
    return PlanOptions(
        placement=f.placement,
        consecutive=f.consecutive,
        chunks=_chunks(f),
        layer_bytes=f.layer_bytes,
        devices=_devices(f),
        replicas=1 if f.all_experts else _positive(f.replicas, "--replicas"),
        tensor_parallel=_positive(f.tensor_parallel, "--tensor-parallel-size"),
        expert_parallel=_expert_parallel(f),
        context_parallel=_context_parallel(f),
        sequence_parallel=f.sequence_parallel,
        overlap=f.overlap,
        redundant_experts=_optional(f.redundant_experts or None, "--redundant-experts") or 0,
        expert_imbalance=_exponent(f.expert_imbalance),
        host=HostOverhead(
            floor_ns=parse_duration_ns(f.host_floor, "--host-floor"),
            sequence_ns=parse_duration_ns(f.host_sequence, "--host-sequence"),
        ),
        profile=profile if isinstance(profile, Profile) else None,
        efficiencies=profile if isinstance(profile, Efficiencies) else None,
        context_tokens=_optional(context, "--context"),
        concurrency=_positive(f.concurrency, "--concurrency"),
        axes=_axes(f.axis_order),
        memory_share=_share(f.memory_share),
        activations=f.activations,
        hop_latency_ns=_hop_latency(f.hop_latency, link),
        hop_bytes_per_s=_hop_bandwidth(f.hop_bandwidth, link),
        hop_jitter_ns=parse_duration_ns(f.hop_jitter, "--hop-jitter"),
        microbatch=_optional(f.microbatch, "--microbatch"),
        credits=_optional(f.credits_, "--credits"),
        batched_tokens=_positive(f.batched_tokens, "--batched-tokens"),
        block_tokens=_positive(f.block_tokens, "--block-tokens"),
        whole_kv=f.whole_kv,
    )


def wired(device: Device, f: PlanFlags, shelf: Catalog) -> Device:
    """The device with the links that were asked for; what was measured on others no longer holds."""
    return on_topology(
        device,
        devices=_optional(f.devices_per_node, "--devices-per-node"),
        scale_up=shelf.link(f.scale_up).network if f.scale_up else None,
        scale_out=shelf.link(f.scale_out).network if f.scale_out else None,
    )


def _axes(text: str | None) -> tuple[Axis, ...]:
    """ "cp,tp" -> ("cp", "tp"). Raises UsageError."""
    names = text.split(",") if text else []
    if len(set(names)) < len(names) or not set(names) <= set(AXES):
        raise UsageError(f"--axis-order {text}: give some of {','.join(AXES)}, each once, the innermost first")
    return tuple(cast(list[Axis], names))


def element_type(name: CacheType, default: ElementType) -> ElementType:
    """The type that a flag names, its synonyms included."""
    return default if name == "auto" else SYNONYMS.get(name) or cast(ElementType, name)


def _devices(f: PlanFlags) -> int | None:
    """Devices per replica, from --devices or from the number of stages."""
    devices = _optional(f.devices, "--devices")
    if f.stages is None:
        return devices
    each = max(f.tensor_parallel, _expert_parallel(f)) * f.context_parallel
    product = _positive(f.stages, "--pipeline-parallel-size") * each
    if devices not in (None, product):
        raise UsageError(f"--devices {devices}: {f.stages} stages of {each} device(s) need {product}")
    return product


def _chunks(f: PlanFlags) -> int:
    if f.placement == "interleaved":
        return 2 if f.chunks is None else _positive(f.chunks, "--chunks")
    if f.chunks not in (None, 1):
        raise UsageError(f"--chunks {f.chunks}: only --placement interleaved has several; give both")
    return 1


def _expert_parallel(f: PlanFlags) -> int:
    """Ranks that experts are spread over: a multiple of the tensor ranks, or 1."""
    ranks = _positive(f.expert_parallel, "--ep")
    if f.all_experts:
        if ranks > 1:
            raise UsageError("--ep and --enable-expert-parallel say the same thing: give one of them")
        ranks = _positive(f.tensor_parallel, "--tensor-parallel-size") * _positive(f.replicas, "--data-parallel-size")
    if ranks > 1 and ranks % f.tensor_parallel:
        raise UsageError(f"--ep {ranks} is not a multiple of --tensor-parallel-size {f.tensor_parallel}")
    return ranks


def _context_parallel(f: PlanFlags) -> int:
    ranks = _positive(f.context_parallel, "--cp")
    if ranks > 1 and _expert_parallel(f) > f.tensor_parallel:
        raise UsageError("--cp can't be combined with replicas of attention: give --ep no larger than --tp")
    return ranks


def _exponent(value: float) -> float:
    if not 0 <= value <= MAX_EXPONENT:
        raise UsageError(f"--expert-imbalance {value}: must lie between 0 and {MAX_EXPONENT:g}")
    return value


def _positive(value: int, flag: str) -> int:
    if not 1 <= value <= MAX_COUNT:
        raise UsageError(f"{flag} {value}: must lie between 1 and {MAX_COUNT:,}")
    return value


def _optional(value: int | None, flag: str) -> int | None:
    return None if value is None else _positive(value, flag)


def _hop_latency(text: str | None, link: Network | None) -> int | None:
    """The flag, else the network's; None leaves it to the device."""
    if text is not None:
        return parse_duration_ns(text, "--hop-latency")
    return link.latency_ns if link else None


def _hop_bandwidth(text: str | None, link: Network | None) -> int | None:
    """The flag, else the network's; None leaves it to the device."""
    if text is not None:
        return parse_rate_bytes_per_s(text, "--hop-bandwidth")
    return link.bytes_per_s if link else None


def _share(value: float | None) -> float | None:
    if value is not None and not 0 < value <= 1:
        raise UsageError(f"--memory-share {value}: a share is above 0 and at most 1")
    return value
