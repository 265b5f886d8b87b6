"""The report of a plan: what each stage holds, which one limits requests, how many microbatches fill the pipeline."""

import msgspec

from stageline.cost.entries import Roofline
from stageline.plan.axes import AxisRow
from stageline.plan.build import Planned
from stageline.plan.capacity import ContextCapacity, by_context, crossover_tokens
from stageline.plan.engine_start import EngineStart, engine_start
from stageline.plan.memory import Memory
from stageline.plan.schema import Plan, StagePlan


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one device of a stage: weights, ledger and reserve. Activations use the reserve."""

    weight_bytes: int  # the mean over the stage's devices
    kv_bytes: int  # KV and state that the ledger may hold
    activation_bytes: int
    reserve_bytes: int  # all other memory: activations, the runtime, fragmentation


class StageRow(msgspec.Struct, frozen=True, kw_only=True):
    """One stage of the table."""

    name: str
    layers: str  # 0-based ranges
    visits: int
    weight_bytes: int
    free_bytes: int
    requests: int  # of the planned context that fit
    service_ns: int  # of all visits, one decode step of the nominal microbatch
    hardware: str  # catalogue name of its devices
    device: DeviceMemory


class PlanReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `stageline plan --json` prints. Numbers are per replica unless their names say total."""

    model: str
    device: str
    devices: int
    visits: int
    replicas: int
    total_devices: int
    weight_bytes: int
    context_tokens: int
    requests: int
    total_requests: int
    binding_stage: str
    microbatch: int
    credits: int
    knee: int  # ceil(L / T)
    published_in_flight: int  # the published rule: stages x microbatch
    trip_ns: int  # L
    busiest_ns: int  # T
    network_floor_ns: int
    serving: str  # the serving engine in one line; "" if the plan names none
    engine_start: EngineStart | None  # what the serving engine says when it starts; None if the plan names none
    max_model_len: int  # longest prompt and output together; 0: no limit
    digest: str
    stages: tuple[StageRow, ...]
    axes: tuple[AxisRow, ...]  # innermost first
    by_context: tuple[ContextCapacity, ...]
    state_binds_below_tokens: int | None  # KV is the limit from there on; None: the limit never changes


def plan_report(planned: Planned) -> PlanReport:
    """Summarise a plan."""
    plan, timing = planned.plan, planned.timing
    devices = sum(stage.devices for stage in plan.stages)
    binding = min(range(len(plan.stages)), key=lambda i: planned.requests[i])
    return PlanReport(
        model=plan.model,
        device=device_text(plan),
        devices=devices,
        visits=len(plan.visits),
        replicas=plan.replicas,
        total_devices=devices * plan.replicas,
        weight_bytes=sum(stage.weight_bytes for stage in plan.stages),
        context_tokens=planned.memory.context_tokens,
        requests=planned.requests[binding],
        total_requests=planned.requests[binding] * plan.replicas,
        binding_stage=plan.stages[binding].name,
        microbatch=plan.defaults.microbatch,
        credits=plan.defaults.credits,
        knee=timing.knee,
        published_in_flight=len(plan.stages) * plan.defaults.microbatch,
        trip_ns=timing.trip_ns,
        busiest_ns=timing.busiest_ns,
        network_floor_ns=timing.network_ns,
        serving=serving_text(plan),
        engine_start=engine_start(plan, planned.memory),
        max_model_len=plan.max_context_tokens,
        digest=plan.digest(),
        stages=tuple(_row(planned, i, stage) for i, stage in enumerate(plan.stages)),
        axes=planned.axes,
        by_context=by_context(plan.stages, planned.memory, plan.max_context_tokens),
        state_binds_below_tokens=crossover_tokens(plan.stages, planned.memory, plan.max_context_tokens),
    )


def device_text(plan: Plan) -> str:
    """The kinds of devices of a plan: "h100-sxm", or "h100-sxm + l40s"."""
    return " + ".join(dict.fromkeys(stage.device or plan.device for stage in plan.stages))


def serving_text(plan: Plan) -> str:
    """How the plan's serving engine schedules, in one line."""
    engine = plan.serving
    if not engine:
        return ""
    running = f"at most {engine.max_running:,} running, " if engine.max_running else ""
    kv = {"grow": "KV block by block with preemption", "reserve": "KV reserved for the longest output"}
    cache = "on" if engine.prefix_cache else "off"
    return (
        f"{engine.engine} {engine.release}: {engine.batching} batches, {running}"
        f"{plan.defaults.batched_tokens:,} new tokens a step, {kv.get(engine.kv, engine.kv)}, prefix cache {cache}"
        f"{_host_text(plan)}"
    )


def _host_text(plan: Plan) -> str:
    """What the host does, where the plan's costs say it."""
    first = plan.costs[plan.visits[0].cost]
    if not isinstance(first, Roofline):
        return ""
    found = ""
    if first.graphs:
        found = f", CUDA graphs up to {first.graphs.sizes[-1]:,}" if first.graphs.sizes else ", no CUDA graphs"
    if first.sequence_ns:
        found += f", {'asynchronous' if first.host_hidden else 'synchronous'} scheduling"
    return found


def _row(planned: Planned, index: int, stage: StagePlan) -> StageRow:
    return StageRow(
        name=stage.name,
        layers=ranges(stage.layers),
        visits=sum(visit.stage == index for visit in planned.plan.visits),
        weight_bytes=stage.weight_bytes,
        free_bytes=stage.kv_budget_bytes,
        requests=planned.requests[index],
        service_ns=planned.timing.stage_ns[index],
        hardware=stage.device,
        device=_device_memory(planned.memories[index], stage),
    )


def _device_memory(memory: Memory, stage: StagePlan) -> DeviceMemory:
    last = stage.layers[-1] == memory.layers - 1
    return DeviceMemory(
        weight_bytes=-(-stage.weight_bytes // stage.devices),
        kv_bytes=stage.kv_budget_bytes // stage.devices,
        activation_bytes=memory.activation_bytes(last),
        reserve_bytes=(memory.memory_bytes - stage.weight_bytes - stage.kv_budget_bytes) // stage.devices,
    )


def ranges(layers: tuple[int, ...]) -> str:
    """0-based layers as text: (0, 1, 2, 4) is "0-2, 4"."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and runs[-1][1] == layer - 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
