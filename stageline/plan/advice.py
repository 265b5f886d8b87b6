"""What stands out in a plan, and what it costs. What helps depends on the load, which a plan does not know."""

from collections.abc import Callable

import msgspec

from stageline.errors import DoesNotFit, UsageError
from stageline.hardware.device import Device
from stageline.model.ffn import Moe
from stageline.model.spec import ModelSpec
from stageline.plan import findings
from stageline.plan.build import Planned, make_plan
from stageline.plan.engine_start import engine_start
from stageline.plan.evenness import Cut, evenness
from stageline.plan.fit import SMALLER_WEIGHTS, fits_with
from stageline.plan.memory import Memory
from stageline.plan.options import PlanOptions
from stageline.plan.partition import fewest
from stageline.units import counted


class Planning(msgspec.Struct, frozen=True):
    """A plan, and what it was made from."""

    spec: ModelSpec
    device: Device
    options: PlanOptions
    planned: Planned


def advice(spec: ModelSpec, device: Device, options: PlanOptions, planned: Planned) -> list[str]:
    """One text per mistake; none for a sound plan."""
    planning = Planning(spec, device, options, planned)
    rules = SAME_PLAN_RULES if options.devices_by_stage else PLAN_RULES
    return [text for rule in rules if (text := rule(planning))]


def _split_without_need(p: Planning) -> str:
    devices = sum(stage.devices for stage in p.planned.plan.stages)
    alone = msgspec.structs.replace(
        p.options,
        devices=1,
        tensor_parallel=1,
        expert_parallel=1,
        context_parallel=1,
        placement="fewest",
        layer_partition="balanced",
    )
    if devices == 1 or not fits_with(p.spec, p.device, alone):
        return ""
    return (
        f"{findings.split(p.device.name, f'{p.spec.name} and the planned requests', devices)} (--devices, --replicas)."
    )


def _tensor_group_across_nodes(p: Planning) -> str:
    up, ranks = p.device.scale_up, p.options.tensor_parallel
    if ranks == 1 or (up and ranks <= up.devices):
        return ""
    inside = up.devices if up else 1
    return (
        f"{findings.group_across_nodes(ranks, inside, p.device.name)}: every layer waits twice for links of "
        f"{p.device.scale_out.bytes_per_s / 1e9:g} GB/s{_trip_inside(p, inside)}."
    )


def _trip_inside(p: Planning, inside: int) -> str:
    """A token's trip here, and on as many devices with tensor groups inside a domain; "" if those can't be planned."""
    devices = sum(stage.devices for stage in p.planned.plan.stages)
    options = msgspec.structs.replace(
        p.options, tensor_parallel=inside, expert_parallel=1, devices=devices, credits=None
    )
    try:
        found = make_plan(p.spec, p.device, options).timing.trip_ns
    except (DoesNotFit, UsageError):
        return ""
    return f"; a token's trip takes {p.planned.timing.trip_ns:,} ns, with --tp {inside} on as many devices {found:,} ns"


def _hops_dominate(p: Planning) -> str:
    timing = p.planned.timing
    found = findings.hops_dominate(timing.network_ns, timing.trip_ns, "a token's trip")
    return f"{found}." if found else ""


def _unbalanced(p: Planning) -> str:
    times = p.planned.timing.stage_ns
    worst, found = findings.busiest(times, [stage.name for stage in p.planned.plan.stages])
    if not found:
        return ""
    why = " (it holds the head)" if worst == len(times) - 1 else ""
    reached = Cut(len(times), evenness(times)).evenness
    return f"{found}{why}: the pipeline reaches {reached:.1%} of the throughput of an even cut."


def _kv_binds(p: Planning) -> str:
    stages, requests = len(p.planned.plan.stages), min(p.planned.requests)
    if requests >= findings.FEW_REQUESTS * stages:
        return ""
    dtype = "" if p.planned.plan.info.get("kv_type") == "fp8" else "--kv-cache-dtype, "
    context, holder = (
        p.planned.memory.context_tokens,
        "The KV that was given" if p.planned.memory.kv_given else "Memory",
    )
    return (
        f"{holder} holds {counted(requests, 'request')} of {context:,} tokens, {requests / stages:.1f} per stage: "
        f"KV and state limit this plan long before compute ({_room_flags(p, f'{dtype}--context', '--devices')})."
    )


def _room_flags(p: Planning, always: str, of_memory: str) -> str:
    """The flags that move the room for KV: that which gives it, or those of the memory that it is taken from."""
    given = "--kv-cache-memory-bytes" if p.options.kv_cache_bytes is not None else of_memory
    return f"{always}, {'--num-gpu-blocks-override' if p.options.kv_blocks is not None else given}"


def _too_few_in_flight(p: Planning) -> str:
    asked, knee = p.options.concurrency, p.planned.timing.knee
    if asked == 1 or asked >= knee:
        return ""
    return (
        f"{asked} concurrent requests keep the busiest stage busy for at most {asked / knee:.0%} of the time; "
        f"{1 - asked / knee:.0%} is bubble. {knee} microbatches fill the pipeline."
    )


def _replicas_instead_of_split(p: Planning) -> str:
    """Every replica holds all weights, in memory that KV could use."""
    copies, stages = p.options.replicas, len(p.planned.plan.stages)
    requests = min(p.planned.requests)
    if copies == 1 or stages * copies > len(p.spec.layers) or requests >= findings.FEW_REQUESTS * stages:
        return ""
    devices = sum(stage.devices for stage in p.planned.plan.stages) * copies
    one = msgspec.structs.replace(p.options, devices=devices, replicas=1, credits=None, layer_partition="balanced")
    joined = make_plan(p.spec, p.device, one)
    if min(joined.requests) <= 2 * copies * requests:
        return ""
    return (
        f"{copies} replicas hold {copies * requests} requests in total, one pipeline over the same {devices} devices "
        f"holds {min(joined.requests):,} (--devices, --replicas)."
    )


def _nominal_layers(p: Planning) -> str:
    if p.options.layer_bytes == "exact":
        return ""
    real = [p.spec.layer_bytes(i) for i in range(len(p.spec.layers))]
    found = findings.nominal_layers(p.planned.memory.weights[0], real)
    return f"{found} (--layer-bytes)." if found else ""


def _smaller_weights(p: Planning) -> str:
    """The first weight format that needs fewer devices."""
    stages = len(p.planned.plan.stages)
    if p.options.devices is not None or stages == 1 or p.options.placement == "by-kind" or _split_without_need(p):
        return ""
    for name in SMALLER_WEIGHTS:
        smaller = p.spec.requantised(name)
        cuts = fewest(len(smaller.layers), Memory(smaller, p.device, p.options).fits)
        if not isinstance(cuts, int) and len(cuts) < stages:
            each = p.options.stage_devices
            return f"{findings.smaller_weights(name, '', len(cuts) * each, stages * each)} (--weights)."
    return ""


def _would_not_start(p: Planning) -> str:
    """vLLM ends at once if its KV cache does not hold one request of max_model_len tokens."""
    start = engine_start(p.planned.plan, p.planned.memory)
    if start is None or start.max_concurrency is None or start.max_concurrency >= 1 or p.options.activations != "kv":
        return ""
    flags = _room_flags(p, "--max-model-len", "--gpu-memory-utilization, --tensor-parallel-size")
    return (
        f"vLLM would not start: one request of {start.max_model_len:,} tokens does not fit its KV cache, which holds "
        f"{start.kv_cache_tokens:,} ({flags})."
    )


STATIC_FP8 = "fp8-static"


def _static_experts(p: Planning) -> str:
    """Experts in FP8 with the checkpoint's scales for activations run in another kernel than others in FP8."""
    routed = {layer.formats.routed_experts for layer in p.spec.layers if isinstance(layer.ffn, Moe)}
    costs = p.device.costs
    if STATIC_FP8 not in routed or costs is None:
        return ""
    held = f"Experts in FP8 with static scales ({p.spec.name})"
    found = costs.moe_of(STATIC_FP8, p.device.peak_flops.precision("fp8"), w4a8=False)
    if found and found.format == STATIC_FP8:
        return (
            f"{held} cost what FlashInfer's CUTLASS kernel takes on {p.device.name}, several times Triton's "
            f"(docs/costs.md); --weights fp8 plans scales that are made as activations come, which run in Triton."
        )
    stands_in = f"{found.format}'s constants stand in" if found else "a share of the device's peaks stands in"
    return f"{held} have no kernel of their own in the tables of {p.device.name}: {stands_in}."


PLAN_RULES: tuple[Callable[[Planning], str], ...] = (
    _would_not_start,
    _split_without_need,
    _replicas_instead_of_split,
    _tensor_group_across_nodes,
    _hops_dominate,
    _unbalanced,
    _kv_binds,
    _too_few_in_flight,
    _nominal_layers,
    _smaller_weights,
    _static_experts,
)
SAME_PLAN_RULES = (  # try no other plan
    _would_not_start, _hops_dominate, _unbalanced, _kv_binds, _too_few_in_flight, _static_experts
)  # fmt: skip
