"""The planner: makes a plan for a model on devices."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from stageline.cost.entries import CostEntry
from stageline.cost.kernel_profile import KernelProfile, check_kernel_profile
from stageline.cost.profile import check_profile
from stageline.cost.service import compile_cost, min_service_ns
from stageline.errors import DoesNotFit
from stageline.hardware.device import Device
from stageline.model.spec import ModelSpec
from stageline.plan.axes import AxisPlanner, AxisRow, prefill_totals
from stageline.plan.check_shape import check_shape
from stageline.plan.cost_entry import cost_entry
from stageline.plan.fit import check_fit
from stageline.plan.fitted_efficiencies import with_efficiencies
from stageline.plan.interleave import interleaved
from stageline.plan.kv_given import check_given_room, longest, with_blocks, with_kv_bytes
from stageline.plan.layer_partition import given_cuts
from stageline.plan.links import links
from stageline.plan.memory import Memory
from stageline.plan.options import AXES, PlanOptions
from stageline.plan.partition import Cuts, Part, balanced_over, fewest, held, roomiest
from stageline.plan.placement import LayerRun, Layers, by_kind, route
from stageline.plan.schema import Defaults, Plan, StagePlan, Visit
from stageline.plan.sizing import credits_for, for_ranks, is_asynchronous, nominal_microbatch, serving
from stageline.plan.stage_hardware import FLAG as STAGE_DEVICES
from stageline.plan.stage_hardware import StageHardware, check_stage_devices
from stageline.plan.stage_work import stage_work
from stageline.plan.timing import PipelineTiming, decode_totals, pipeline_timing

BALANCE_SLACK = 0.03  # how much slower the busiest stage may be for more room for KV
WORTH_IT = 1.1  # more requests than the most balanced cut holds
MAX_REQUESTS = 1 << 20
BALANCE_MICROBATCH = 8  # sequences of the decode step whose stage times are balanced


class Planned(NamedTuple):
    """A plan, and what the planner computed for it."""

    plan: Plan
    memory: Memory
    timing: PipelineTiming
    requests: tuple[int, ...]  # by stage: requests of the planned context that fit
    axes: tuple[AxisRow, ...]  # innermost first
    memories: tuple[Memory, ...]  # by stage


def make_plan(spec: ModelSpec, device: Device, options: PlanOptions) -> Planned:
    """Assign layers to stages, route, price and size.

    Raises DoesNotFit, and UsageError or BadInput for options that contradict each other or the model.
    """
    device, options = with_efficiencies(spec, device, for_ranks(options))
    check_shape(spec, options)
    if isinstance(options.profile, KernelProfile):
        check_kernel_profile(options.profile, spec, device.name, options.group, options.expert_imbalance)
    elif options.profile:
        check_profile(options.profile, spec, device.name, options.tensor_parallel)
    check_stage_devices(options, len(spec.layers))
    hardware = StageHardware(spec, device, options)
    memory = hardware.memory
    if not hardware.mixed:
        check_fit(spec, device, memory, options)
    layouts = _layouts(spec, hardware, options)
    stages = tuple(_stage(i, layers, spec, hardware, options) for i, layers in enumerate(layouts))
    memories = tuple(hardware.memory_of(i) for i in range(len(stages)))
    requests = tuple(_requests(stage, own) for stage, own in zip(stages, memories, strict=True))
    check_given_room(stages, requests, memory.context_tokens, options)
    microbatch = nominal_microbatch(len(stages), min(requests), options)
    decode, ranks = decode_totals(microbatch, memory.context_tokens), options.group.attention_replicas
    options = msgspec.structs.replace(options, async_scheduling=is_asynchronous(len(stages), options))
    runs = route(layouts)
    priced = (decode, prefill_totals(options.batched_tokens, memory.context_tokens, ranks))
    strides, axes = AxisPlanner(spec, device, options, runs, priced).choose()
    options = msgspec.structs.replace(options, strides=strides)
    costs, visits = _visits(spec, device, options, runs)
    route_links = links(spec, device, options, runs)
    timing = pipeline_timing(len(stages), visits, route_links, costs, decode)
    plan = Plan(
        model=spec.name,
        device=device.name,
        stages=stages,
        visits=visits,
        links=route_links,
        costs=costs,
        defaults=Defaults(
            microbatch=microbatch,
            credits=credits_for(len(stages), timing, options),
            batched_tokens=options.batched_tokens,
        ),
        block_tokens=options.block_tokens,
        max_context_tokens=longest(stages, spec, options),
        replicas=options.replicas,
        serving=serving(stages, options) or msgspec.UNSET,
        info=_info(spec, memory, options) | _order(axes),
    )
    return Planned(plan=plan, memory=memory, timing=timing, requests=requests, axes=axes, memories=memories)


def _layouts(spec: ModelSpec, hardware: StageHardware, options: PlanOptions) -> list[Layers]:
    """The layers of every stage, with stages in the order of their first layer. Raises DoesNotFit and BadInput."""
    memory = hardware.memory
    if options.placement == "by-kind":
        return by_kind(spec, memory, options.consecutive)
    if options.placement == "fewest" and options.layer_partition != "balanced":
        cuts = given_cuts(spec, hardware, options.layer_partition, _stage_count(memory, options))
        return [tuple(range(start, end)) for start, end in cuts]
    sequences, seen = options.microbatch or BALANCE_MICROBATCH, set[int]()
    while True:  # the microbatch that the plan will use depends on the cut: until it stays the same
        seen.add(sequences)
        layouts = _balanced_layouts(spec, hardware, options, sequences)
        held = ((hardware.memory_of(i), x) for i, x in enumerate(layouts))
        requests = (own.room_bytes(x) // max(1, own.request_bytes(x)) for own, x in held)
        sequences = nominal_microbatch(len(layouts), min(requests), options)
        if sequences in seen:
            return layouts


def _balanced_layouts(spec: ModelSpec, hardware: StageHardware, options: PlanOptions, sequences: int) -> list[Layers]:
    """The layers of every stage, cut evenly by the times of layers, on each stage's device."""
    device, memory = hardware.device_of(0), hardware.memory
    if options.placement == "interleaved":
        times = layer_times(spec, device, options, sequences, memory.context_tokens)
        return interleaved(spec, device, memory, options, times)
    stages, kinds = _stage_count(memory, options), dict[str, Part]()
    for i in range(stages):
        own = hardware.device_of(i)
        if own.name not in kinds:
            times = layer_times(spec, own, options, sequences, memory.context_tokens)
            kinds[own.name] = Part(times, hardware.memory_of(i).fits, hardware.memory_of(i).run_requests)
    parts = [kinds[hardware.device_of(i).name] for i in range(stages)]
    cuts = balanced_over(parts)
    if cuts is not None and not memory.kv_given:
        cuts = _roomier(parts, cuts, options.max_running or MAX_REQUESTS)
    if cuts is None and hardware.mixed:
        raise DoesNotFit(_mixed_message(spec, hardware, stages))
    if cuts is None:  # a tied embedding is held once by one stage, but twice by two or more
        copy = f"a second copy of the tied embedding, {memory.head_bytes:,} bytes, does not fit"
        raise DoesNotFit(f"{spec.name} does not fit {stages} stages of {device.name}: {copy}", "--devices 1")
    return [tuple(range(start, end)) for start, end in cuts]


def _roomier(parts: Sequence[Part], cuts: Cuts, enough: int) -> Cuts:
    """The cut with the most room for KV that is hardly slower, if its room is worth that; else these cuts."""
    before = held(parts, cuts)
    if before >= enough:
        return cuts
    found = roomiest(parts, cuts, BALANCE_SLACK, enough)
    return found if min(held(parts, found), enough) >= WORTH_IT * before else cuts


def _mixed_message(spec: ModelSpec, hardware: StageHardware, stages: int) -> str:
    have = sum(hardware.memory_of(i).capacity_bytes for i in range(stages))
    need = hardware.memory.run_need_bytes(0, len(spec.layers))
    kinds = " + ".join(dict.fromkeys(hardware.device_of(i).name for i in range(stages)))
    gap = f"{need - have:,} bytes short" if need > have else "but no cut into whole layers fits every stage"
    return (
        f"{spec.name} does not fit {stages} stages of {kinds}: {need:,} bytes are needed of {have:,} usable, {gap}; "
        f"give {STAGE_DEVICES} more stages or larger devices, or make room for less (--context)"
    )


def _stage_count(memory: Memory, options: PlanOptions) -> int:
    if options.devices_by_stage:
        return len(options.devices_by_stage)
    if options.devices is None and isinstance(options.layer_partition, tuple):
        return len(options.layer_partition)
    if options.devices is not None:
        return options.devices // options.stage_devices
    cuts = fewest(memory.layers, memory.fits)
    assert not isinstance(cuts, int), "check_fit refuses a layer that does not fit"
    return len(cuts)


def layer_times(spec: ModelSpec, device: Device, options: PlanOptions, sequences: int, context: int) -> list[int]:
    """Time in ns of a decode step in every layer alone; the last one's includes the head.

    The first one's includes the serving engine's host time, unless it hides behind the devices' or there is one stage.
    """
    totals = decode_totals(sequences, context)
    asked, options = options, msgspec.structs.replace(options, engine_sequence_ns=0.0)
    count = len(spec.layers)
    first_of = {layer: i for i, layer in reversed(list(enumerate(spec.layers))) if i < count - 1 or count == 1}
    time_of = {
        layer: compile_cost(cost_entry(spec, [i], device, options)).service_ns(totals) for layer, i in first_of.items()
    }
    times = [time_of.get(layer, 0) for layer in spec.layers]
    last = count - 1
    times[last] = compile_cost(cost_entry(spec, [last], device, options)).service_ns(totals)
    if count > 1 and not is_asynchronous(2, asked):
        times[0] = compile_cost(cost_entry(spec, [0], device, asked)).service_ns(totals)
    return times


def _visits(
    spec: ModelSpec, device: Device, options: PlanOptions, runs: Sequence[LayerRun]
) -> tuple[tuple[CostEntry, ...], tuple[Visit, ...]]:
    """The distinct cost entries, and the visits, which refer to them by index."""
    index: dict[CostEntry, int] = {}
    floors: list[int] = []
    visits = []
    for run in runs:
        entry = cost_entry(spec, run.layers, options.device_of(run.stage, device), options)
        if entry not in index:
            index[entry] = len(index)
            floors.append(min_service_ns(entry))
        cost = index[entry]
        visits.append(Visit(stage=run.stage, layers=run.layers, cost=cost, min_service_ns=floors[cost]))
    return tuple(index), tuple(visits)


def _stage(index: int, layers: Layers, spec: ModelSpec, hardware: StageHardware, options: PlanOptions) -> StagePlan:
    device, memory = hardware.device_of(index), hardware.memory_of(index)
    weights = memory.weight_bytes(layers)
    stage = StagePlan(
        name=f"stage-{index}",
        layers=layers,
        devices=options.stage_devices,
        device=device.name,
        weight_bytes=weights,
        memory_bytes=memory.capacity_bytes,
        kv_budget_bytes=memory.room_bytes(layers),
        kv_block_bytes=memory.block_bytes(layers),
        state_bytes=memory.state_bytes(layers),
        kv_windows=memory.windows(layers) or msgspec.UNSET,
        work=stage_work(spec, layers, device, memory, options),
    )
    stage = with_kv_bytes(stage, options.kv_cache_bytes, device.memory_bytes)
    return with_blocks(stage, options.kv_blocks, device.memory_bytes)


def _requests(stage: StagePlan, memory: Memory) -> int:
    """Requests of the planned context that the stage's ledger holds."""
    return stage.kv_budget_bytes // max(1, memory.request_bytes(stage.layers))


def _partition_text(options: PlanOptions) -> str:
    return (
        options.layer_partition
        if isinstance(options.layer_partition, str)
        else ",".join(map(str, options.layer_partition))
    )


def _order(axes: Sequence[AxisRow]) -> dict[str, str | int | float | bool]:
    """The order of the axes from the innermost, unless it is the default one."""
    order = [row.axis for row in axes]
    default = order == sorted(order, key=AXES.index)
    return {} if default else {"axes": ",".join(order)}


def _info(spec: ModelSpec, memory: Memory, options: PlanOptions) -> dict[str, str | int | float | bool]:
    info: dict[str, str | int | float | bool] = {
        "placement": options.placement,
        **({} if options.layer_partition == "balanced" else {"partition": _partition_text(options)}),
        "consecutive": options.consecutive or options.placement == "fewest",
        "layer_bytes": options.layer_bytes,
        "context_tokens": memory.context_tokens,
        "concurrency": options.concurrency,
        "kv_type": spec.kv_type,
        "state_type": spec.state_type,
    }
    if options.devices_by_stage:
        info["stage_devices"] = ",".join(device.name for device in options.devices_by_stage)
    named = options.profile or options.efficiencies
    if named:
        info["profile"] = named.name
    return info | {"chunks": options.chunks} if options.placement == "interleaved" else info
