"""What a plan is asked for, checked and turned into the planner's own options. Messages name the command's flags."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import msgspec

from stageline.api.keywords import ElementName, PlanKeywords
from stageline.api.lookup import find_profile
from stageline.api.quantization import FLAG as QUANTIZATION
from stageline.api.quantization import as_loaded
from stageline.catalog.loader import Catalog
from stageline.cost.efficiencies import Efficiencies
from stageline.cost.roofline_entry import HostOverhead
from stageline.cost.sampling import Sampling
from stageline.errors import UsageError
from stageline.hardware.device import Device, on_topology
from stageline.hardware.networks import Network
from stageline.model.formats import format_named
from stageline.model.spec import ElementType, ModelSpec
from stageline.plan.layer_partition import FLAG, parse_partition
from stageline.plan.options import AXES, PlanOptions
from stageline.plan.stage_hardware import parse_stage_devices
from stageline.units import MAX_TIME_NS, counted

MAX_OPTION = 1 << 32
MAX_EXPONENT = 10.0
SYNONYMS: dict[str, ElementType] = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
}
_COUNTS = {  # keywords that are whole numbers from 1, and their flags
    "devices": "--devices",
    "stages": "--pipeline-parallel-size",
    "replicas": "--replicas",
    "tensor_parallel": "--tensor-parallel-size",
    "expert_parallel": "--ep",
    "context_parallel": "--cp",
    "chunks": "--chunks",
    "context_tokens": "--context",
    "concurrency": "--concurrency",
    "block_tokens": "--block-tokens",
    "devices_per_node": "--devices-per-node",
    "microbatch": "--microbatch",
    "credits": "--credits",
    "batched_tokens": "--batched-tokens",
    "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-num-batched-tokens",
    "kv_blocks": "--num-gpu-blocks-override",
    "cuda_graph_max": "--cuda-graph-max",
}
_TIMES = {
    "hop_latency_ns": "--hop-latency",
    "hop_jitter_ns": "--hop-jitter",
    "host_floor_ns": "--host-floor",
    "host_step_ns": "--host-step",
    "host_sequence_ns": "--host-sequence",
    "sampling_step_ns": "--sampling-step",
    "sampling_sequence_ns": "--sampling-sequence",
    "front_end_ns": "--front-end",
    "ring_step_ns": "--ring-step",
}
_AS_GIVEN = (  # keywords that are the planner's options of the same name
    "placement", "consecutive", "layer_bytes", "sequence_parallel", "overlap", "redundant_experts", "expert_imbalance",
    "concurrency", "memory_share", "whole_kv", "language_model_only", "tower_mode", "axes", "microbatch", "credits",
    "tensor_parallel",
    "context_parallel", "hop_jitter_ns", "kv_blocks", "kv_cache_bytes", "prefix_cache", "ring_step_ns", "front_end_ns",
)  # fmt: skip


def make_options(keywords: PlanKeywords, catalog: Catalog, catalog_dirs: Sequence[Path]) -> PlanOptions:
    """The planner's options. `catalog_dirs` hold profiles/. Raises UsageError or BadInput."""
    _check_ranges(keywords)
    network = _network(keywords.get("network"), catalog)
    profile = find_profile(text, catalog_dirs) if (text := keywords.get("profile")) else None
    ranks = _expert_parallel(keywords)
    if keywords.get("context_parallel", 1) > 1 and ranks > keywords.get("tensor_parallel", 1):
        raise UsageError("--cp can't be combined with replicas of attention: give --ep no larger than --tp")
    limit = keywords.get("max_model_len")
    length = None if limit == "auto" else limit
    partition = parse_partition(keywords.get("layer_partition", "balanced"))
    if partition != "balanced" and keywords.get("placement", "fewest") != "fewest":
        raise UsageError(
            f"{FLAG} can't be combined with --placement {keywords.get('placement')}, which places layers itself"
        )
    if keywords.get("consecutive") and keywords.get("placement", "fewest") != "by-kind":
        raise UsageError(
            "--consecutive is for --placement by-kind: fewest always cuts consecutive layers, interleaved never does"
        )
    return msgspec.structs.replace(
        PlanOptions(),
        layer_partition=partition,
        **{name: value for name, value in keywords.items() if name in _AS_GIVEN},
        context_tokens=keywords.get("context_tokens") or length,
        max_model_len=length,
        longest_that_fits=limit == "auto",
        chunks=_chunks(keywords),
        devices=_devices(keywords, ranks),
        replicas=1 if keywords.get("all_experts") else keywords.get("replicas", 1),
        expert_parallel=ranks,
        host=HostOverhead(
            floor_ns=keywords.get("host_floor_ns", 0),
            step_ns=float(keywords.get("host_step_ns") or 0),
            sequence_ns=keywords.get("host_sequence_ns") or 0,
        ),
        sampling=Sampling(keywords.get("sampling_step_ns", 0), keywords.get("sampling_sequence_ns", 0)),
        profile=None if isinstance(profile, Efficiencies) else profile,
        efficiencies=profile if isinstance(profile, Efficiencies) else None,
        hop_latency_ns=_of_network(keywords.get("hop_latency_ns"), network.latency_ns if network else None),
        hop_bytes_per_s=_of_network(keywords.get("hop_bytes_per_s"), network.bytes_per_s if network else None),
    )


def with_formats(spec: ModelSpec, keywords: PlanKeywords) -> ModelSpec:
    """The model with the formats that were asked for. Raises BadInput for one that does not exist."""
    weights, quantization = keywords.get("weights", "as-shipped"), keywords.get("quantization")
    if quantization and weights != "as-shipped":
        raise UsageError(f"{QUANTIZATION} {quantization}: --weights {weights} says the same thing: give one")
    if quantization:
        spec = as_loaded(spec, quantization, keywords.get("serving_engine"))
    if weights != "as-shipped":
        format_named(weights, "--weights")
        spec = spec.requantised(weights)
    kv = _element_type(keywords.get("kv_cache_dtype", "auto"), spec.kv_type)
    state = _element_type(keywords.get("state_dtype", "auto"), spec.state_type)
    return msgspec.structs.replace(spec, kv_type=kv, state_type=state)


def with_networks(device: Device, keywords: PlanKeywords, catalog: Catalog) -> Device:
    """The device with the networks that were asked for; rows measured on other networks are dropped."""
    up, out = (_network(name, catalog) for name in (keywords.get("scale_up"), keywords.get("scale_out")))
    return on_topology(device, devices=keywords.get("devices_per_node"), scale_up=up, scale_out=out)


def _network(name: str | None, catalog: Catalog) -> Network | None:
    return catalog.link(name).network if name else None


def _check_ranges(keywords: PlanKeywords) -> None:
    for name, flag in _COUNTS.items():
        _between(flag, keywords.get(name), 1, MAX_OPTION)
    for name, flag in _TIMES.items():
        _between(flag, keywords.get(name), 0, MAX_TIME_NS)
    limit = keywords.get("max_model_len")
    _between("--max-model-len", None if limit == "auto" else limit, 1, MAX_OPTION)
    _between("--kv-cache-memory-bytes", keywords.get("kv_cache_bytes"), 1, MAX_TIME_NS)
    _between("--hop-bandwidth", keywords.get("hop_bytes_per_s"), 1, MAX_TIME_NS)
    _between("--redundant-experts", keywords.get("redundant_experts"), 0, MAX_OPTION)
    _between("--expert-imbalance", keywords.get("expert_imbalance"), 0, MAX_EXPONENT)
    share, axes = keywords.get("memory_share"), keywords.get("axes", ())
    if share is not None and not 0 < share <= 1:
        raise UsageError(f"--memory-share {share}: must be above 0 and at most 1")
    if len(set(axes)) < len(axes):
        raise UsageError(f"--axis-order {','.join(axes)}: give some of {','.join(AXES)}, each once, innermost first")


def _between(flag: str, value: object, low: int, high: float) -> None:
    number = cast(float | None, value)
    if number is not None and not low <= number <= high:
        raise UsageError(f"{flag} {number}: must lie between {low} and {high:,}")


def _element_type(name: ElementName, default: ElementType) -> ElementType:
    """The type that a name stands for, synonyms included."""
    return default if name == "auto" else SYNONYMS.get(name) or cast(ElementType, name)


def _devices(keywords: PlanKeywords, expert_parallel: int) -> int | None:
    """Devices per replica, given or from the number of stages."""
    devices, stages = keywords.get("devices"), keywords.get("stages")
    by_stage = keywords.get("devices_by_stage")
    if devices is None and stages is None and by_stage:
        stages = len(parse_stage_devices(by_stage))
    if stages is None:
        return devices
    each = max(keywords.get("tensor_parallel", 1), expert_parallel) * keywords.get("context_parallel", 1)
    if devices not in (None, stages * each):
        raise UsageError(f"--devices {devices}: {stages} stages of {counted(each, 'device')} need {stages * each}")
    return stages * each


def _chunks(keywords: PlanKeywords) -> int:
    chunks = keywords.get("chunks")
    if keywords.get("placement") == "interleaved":
        return 2 if chunks is None else chunks
    if chunks not in (None, 1):
        raise UsageError(f"--chunks {chunks}: only --placement interleaved has several; give both")
    return 1


def _expert_parallel(keywords: PlanKeywords) -> int:
    """Ranks that experts are spread over: a multiple of the tensor ranks, or 1."""
    ranks, tensor = keywords.get("expert_parallel", 1), keywords.get("tensor_parallel", 1)
    if keywords.get("all_experts"):
        if ranks > 1:
            raise UsageError("--ep and --enable-expert-parallel say the same thing: give one of them")
        ranks = tensor * keywords.get("replicas", 1)
    if ranks > 1 and ranks % tensor:
        raise UsageError(f"--ep {ranks} is not a multiple of --tensor-parallel-size {tensor}")
    return ranks


def _of_network(given: int | None, networks: int | None) -> int | None:
    """The value given, else the network's; None leaves it to the device."""
    return networks if given is None else given
