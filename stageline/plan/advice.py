"""Common mistakes, found in a plan: what each costs, and what to do about it."""

from collections.abc import Callable

import msgspec

from stageline.errors import DoesNotFit, UsageError
from stageline.hardware.device import Device
from stageline.model.spec import ModelSpec
from stageline.plan.build import BALANCE_MICROBATCH, Planned, layer_times, make_plan
from stageline.plan.evenness import Cut, better_cut, evenness
from stageline.plan.fit import SMALLER_WEIGHTS, fits_with
from stageline.plan.memory import Memory
from stageline.plan.options import PlanOptions
from stageline.plan.partition import fewest

# From where on something is a mistake; `stageline.report.mistakes` judges runs by the same.
HOPS_SHARE = 0.5  # of a token's time: above it latency of the network dominates
IMBALANCE = 1.1  # busiest stage over the mean of all
NOMINAL_ERROR = 0.05  # of a layer's bytes
FEW_REQUESTS = 8  # per stage: decode is bound by reading weights far beyond that


class Planning(msgspec.Struct, frozen=True):
    """What was asked and what came of it."""

    spec: ModelSpec
    device: Device
    options: PlanOptions
    planned: Planned


def advice(spec: ModelSpec, device: Device, options: PlanOptions, planned: Planned) -> list[str]:
    """A sentence or two per mistake; none for a sound plan."""
    asked = Planning(spec, device, options, planned)
    return [text for rule in RULES if (text := rule(asked))]


def _split_without_need(p: Planning) -> str:
    devices = sum(stage.devices for stage in p.planned.plan.stages)
    alone = msgspec.structs.replace(
        p.options, devices=1, tensor_parallel=1, expert_parallel=1, context_parallel=1, placement="fewest"
    )
    if devices == 1 or not fits_with(p.spec, p.device, alone):
        return ""
    return (
        f"One {p.device.name} holds {p.spec.name} and the requests asked for; this plan splits it over {devices}. "
        f"Copies serve more without any traffic between devices: --devices 1 --replicas {devices}. "
        f"Keep the split only for a lower latency per token."
    )


def _tensor_group_across_nodes(p: Planning) -> str:
    up, ranks = p.device.scale_up, p.options.tensor_parallel
    if ranks == 1 or (up and ranks <= up.devices):
        return ""
    inside = up.devices if up else 1
    return (
        f"A tensor group of {ranks} leaves the fast domain of {inside} {p.device.name}: every layer waits twice for "
        f"links of {p.device.scale_out.bytes_per_s / 1e9:g} GB/s{_trip_inside(p, inside)}. "
        f"Use --tp {inside} and more stages (--pp)."
    )


def _trip_inside(p: Planning, inside: int) -> str:
    """What the same devices take for a token with tensor groups that stay inside; nothing where they can't."""
    devices = sum(stage.devices for stage in p.planned.plan.stages)
    options = msgspec.structs.replace(
        p.options, tensor_parallel=inside, expert_parallel=1, devices=devices, credits=None
    )
    try:
        found = make_plan(p.spec, p.device, options).pace.trip_ns
    except (DoesNotFit, UsageError):
        return ""
    return f", {p.planned.pace.trip_ns:,} ns per token's trip where --tp {inside} on as many devices takes {found:,}"


def _hops_dominate(p: Planning) -> str:
    pace = p.planned.pace
    share = pace.network_ns / pace.trip_ns
    if share < HOPS_SHARE:
        return ""
    return (
        f"{share:.0%} of a token's trip is latency of the network ({pace.network_ns:,} of {pace.trip_ns:,} ns): "
        f"no faster device saves that. Use fewer stages or a network with less latency."
    )


def _unbalanced(p: Planning) -> str:
    times = p.planned.pace.stage_ns
    mean, now = sum(times) / len(times), Cut(len(times), evenness(times))
    worst = max(range(len(times)), key=lambda i: times[i])
    if len(times) == 1 or times[worst] <= IMBALANCE * mean:
        return ""
    why = "; it holds the head" if worst == len(times) - 1 else ""
    return (
        f"stage-{worst} takes {times[worst]:,} ns and the mean stage {mean:,.0f}: the pipeline reaches "
        f"{now.evenness:.1%} of what an even cut would{why}. {_better_cut(p, now)}"
    )


def _better_cut(p: Planning, now: Cut) -> str:
    """The flags of a more even cut, by the times that the planner cuts by."""
    context = p.planned.memory.context_tokens
    load = p.options.microbatch or BALANCE_MICROBATCH
    found = better_cut(layer_times(p.spec, p.device, p.options, load, context), now, p.planned.memory.fits)
    if found is None:
        return (
            "No cut into about as many stages is more even: give the busy stage less with more --tp and fewer stages."
        )
    gain = found.evenness / now.evenness
    flags = f"--devices {found.stages * p.options.stage_devices}"
    placement = "--placement fewest " if p.options.placement == "by-kind" else ""
    return f"{placement}{flags} reaches {found.evenness:.1%}, {gain:.2f} times the throughput per device."


def _kv_binds(p: Planning) -> str:
    stages, requests = len(p.planned.plan.stages), min(p.planned.requests)
    if requests >= FEW_REQUESTS * stages:
        return ""
    context = p.planned.memory.context_tokens
    return (
        f"Memory holds {requests} request(s) of {context:,} tokens, {requests / stages:.1f} per stage: KV and state "
        f"bind long before compute does. Use --kv-cache-dtype fp8, a shorter --context, or more devices per replica."
    )


def _too_few_in_flight(p: Planning) -> str:
    asked, knee = p.options.concurrency, p.planned.pace.knee
    if asked == 1 or asked >= knee:
        return ""
    return (
        f"{asked} requests at once keep the busiest stage busy {asked / knee:.0%} of the time at best, "
        f"{1 - asked / knee:.0%} is bubble: {knee} microbatches fill the pipeline."
    )


def _replicas_instead_of_split(p: Planning) -> str:
    """Copies spend memory on weights that KV could have."""
    copies, stages = p.options.replicas, len(p.planned.plan.stages)
    requests = min(p.planned.requests)
    if copies == 1 or stages * copies > len(p.spec.layers) or requests >= FEW_REQUESTS * stages:
        return ""
    devices = sum(stage.devices for stage in p.planned.plan.stages) * copies
    joined = make_plan(p.spec, p.device, msgspec.structs.replace(p.options, devices=devices, replicas=1, credits=None))
    if min(joined.requests) <= 2 * copies * requests:
        return ""
    return (
        f"{copies} replicas hold {copies * requests} requests in all, one pipeline over the same {devices} devices "
        f"{min(joined.requests):,}: use --devices {devices} without --replicas."
    )


def _nominal_layers(p: Planning) -> str:
    real = [p.spec.layer_bytes(i) for i in range(len(p.spec.layers))]
    nominal = p.planned.memory.weights[0]
    worst = max(range(len(real)), key=lambda i: abs(real[i] - nominal))
    error = real[worst] / nominal - 1
    if p.options.layer_bytes == "exact" or abs(error) < NOMINAL_ERROR:
        return ""
    return (
        f"Layers are taken as {nominal:,} bytes each, but layer {worst} has {real[worst]:,} ({error:+.0%}), and the "
        f"embedding and head are not placed: --layer-bytes exact."
    )


def _smaller_weights(p: Planning) -> str:
    """A format with which fewer devices do."""
    stages = len(p.planned.plan.stages)
    if p.options.devices is not None or stages == 1 or p.options.placement == "by-kind":
        return ""
    for name in SMALLER_WEIGHTS:
        smaller = p.spec.requantised(name)
        cuts = fewest(len(smaller.layers), Memory(smaller, p.device, p.options).fits)
        if not isinstance(cuts, int) and len(cuts) < stages:
            saved = (stages - len(cuts)) * p.options.stage_devices
            return f"--weights {name} would save {saved} of {stages * p.options.stage_devices} devices."
    return ""


RULES: tuple[Callable[[Planning], str], ...] = (
    _split_without_need,
    _replicas_instead_of_split,
    _tensor_group_across_nodes,
    _hops_dominate,
    _unbalanced,
    _kv_binds,
    _too_few_in_flight,
    _nominal_layers,
    _smaller_weights,
)
