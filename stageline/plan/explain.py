"""Explains a plan in sentences: its number of stages, its visits, its axes, and the requests that fit."""

from collections import Counter
from itertools import pairwise

from stageline.cost.bounds import KINDS, bounds_ns, shares_text
from stageline.model.spec import ModelSpec
from stageline.plan.axes import AxisRow, prefill_totals
from stageline.plan.build import Planned
from stageline.plan.report import ranges
from stageline.plan.timing import decode_totals
from stageline.units import bytes_text, counted

SHOWN = 3  # examples of stages that are visited twice


def explain(spec: ModelSpec, planned: Planned) -> list[str]:
    """The explanation, in lines of one or two sentences."""
    placement = planned.plan.info["placement"]
    lines = _published_rule(spec, planned) if placement == "by-kind" else _fewest(planned)
    visits = _interleaved(planned) if placement == "interleaved" else _visits(planned)
    return [*lines, visits, *_axes(planned), *_capacity(planned), _in_flight(planned), *_bounds(planned)]


def _microseconds(ns: int) -> str:
    return f"{ns / 1e3:,.1f} us"


def _published_rule(spec: ModelSpec, planned: Planned) -> list[str]:
    """The published arithmetic, such as 69/2 -> 35, + 24 = 59, and why the plan differs."""
    memory = planned.memory
    linear = [i for i, layer in enumerate(spec.layers) if layer.attention.linear]
    full = len(spec.layers) - len(linear)
    stages = len(planned.plan.stages)
    if not linear:
        return [f"{full} full-attention layers, each alone on a stage -> {full} stages."]
    size = max(memory.weights[i] for i in linear)
    per_stage = max(1, memory.capacity_bytes // size)
    rule = -(-len(linear) // per_stage)
    lines = [
        f"{len(linear)} linear-attention layers of {bytes_text(size)}, {per_stage} per stage of "
        f"{bytes_text(memory.capacity_bytes)} -> ceil({len(linear)} / {per_stage}) = {rule} stages.",
        f"{full} full-attention layers, each alone on a stage, the rest of which is KV cache -> {full} stages.",
        f"{len(linear)}/{per_stage} -> {rule}, + {full} = {rule + full}.",
    ]
    if stages == rule + full:
        return lines
    if planned.plan.info["consecutive"]:
        changes = sum(a.attention.linear != b.attention.linear for a, b in pairwise(spec.layers))
        lines.append(
            f"This plan has {stages}: a stage may hold only consecutive layers, and the layer order ({changes + 1} "
            f"runs) leaves single linear-attention layers, which can't share a stage across a full-attention layer."
        )
        return lines
    biggest = max(planned.plan.stages, key=lambda stage: len(stage.layers))
    lines.append(
        f"This plan has {stages}: real layers differ in size, and {biggest.name} holds layers "
        f"{ranges(biggest.layers)} in {bytes_text(biggest.weight_bytes)}."
    )
    return lines


def _fewest(planned: Planned) -> list[str]:
    memory = planned.memory
    need = memory.run_need_bytes(0, memory.layers)
    held = f"Weights and {counted(memory.concurrency, 'request')} of {memory.context_tokens:,} tokens"
    if "stage_devices" in planned.plan.info:
        rooms = ", ".join(
            f"{stage.name} {len(stage.layers)} layers on {stage.device} ({bytes_text(own.capacity_bytes)})"
            for stage, own in zip(planned.plan.stages, planned.memories, strict=True)
        )
        return [f"{held} lie on {rooms}."]
    bound = -(-need // memory.capacity_bytes)
    counts = Counter(len(stage.layers) for stage in planned.plan.stages)
    shape = ", ".join(f"{n} x {size} layers" for size, n in sorted(counts.items(), reverse=True))
    return [
        f"{held} need {bytes_text(need)}: at least {bound} stages of {bytes_text(memory.capacity_bytes)}. "
        "Cut into whole consecutive layers, with embedding and head, "
        f"the model takes {len(planned.plan.stages)}: {shape}."
    ]


def _interleaved(planned: Planned) -> str:
    plan, chunks = planned.plan, planned.plan.info["chunks"]
    return (
        f"Every stage holds {chunks} runs of layers ({plan.stages[0].name}: {ranges(plan.stages[0].layers)}) and is "
        f"visited once per run: {len(plan.visits)} visits per token. The busiest stage takes as long as with one run; "
        f"each further round costs {len(plan.stages)} hops."
    )


def _visits(planned: Planned) -> str:
    """The number of visits, and why it exceeds the number of stages."""
    plan = planned.plan
    count = Counter(visit.stage for visit in plan.visits)
    again = [stage for stage in sorted(count) if count[stage] > 1]
    if not again:
        return f"Every stage holds consecutive layers: {len(plan.visits)} visits per token, one per stage."
    extra = len(plan.visits) - len(plan.stages)
    examples = "; ".join(f"{plan.stages[s].name}: layers {ranges(plan.stages[s].layers)}" for s in again[:SHOWN])
    return (
        f"A token passes the layers in order. {len(again)} stages hold linear layers from both sides of a "
        f"full-attention layer and are visited twice ({examples}{'; ...' if len(again) > SHOWN else ''}): "
        f"{len(plan.stages)} + {extra} = {len(plan.visits)} visits per token."
    )


def _axes(planned: Planned) -> list[str]:
    """The link of every axis, and what the other one would cost."""
    return [
        f"{row.axis}: {row.ranks} ranks, {counted(row.stride, 'device')} apart, on "
        f"{'both links' if row.link == 'both' else f'the {row.link} link'}. {_elsewhere(row)}"
        for row in planned.axes
    ]


def _elsewhere(row: AxisRow) -> str:
    if row.axis == "dp":
        return "Replicas do not communicate."
    if row.elsewhere_ns is None:
        return "No order of the axes gives them another link."
    what = "with every rank in another domain, they"
    if row.link == "scale-out":
        what = "with these ranks on the scale-up link, they"
    return (
        f"A decode step of the nominal microbatch and a prefill chunk take {_microseconds(row.trip_ns)} together; "
        f"{what} would take {_microseconds(abs(row.elsewhere_ns))} {'less' if row.elsewhere_ns < 0 else 'more'}."
    )


def _capacity(planned: Planned) -> list[str]:
    """The requests that fit the tightest stage of every kind, and which stage binds."""
    plan = planned.plan
    seen: dict[tuple[object, ...], int] = {}
    for i, stage in enumerate(plan.stages):
        kind = (stage.kv_block_bytes, stage.state_bytes, stage.windows)
        if kind not in seen or planned.requests[i] < planned.requests[seen[kind]]:
            seen[kind] = i
    binding = min(range(len(plan.stages)), key=lambda i: planned.requests[i])
    lines = []
    for i in sorted(seen.values()):
        stage, keeps = plan.stages[i], []
        if stage.kv_block_bytes:
            keeps.append(f"{stage.kv_block_bytes // plan.block_tokens:,} B of KV per token")
        for w in stage.windows:
            tokens = w.most_blocks * plan.block_tokens
            keeps.append(f"{w.block_bytes // plan.block_tokens:,} B of KV for each of its last {tokens:,} tokens")
        if stage.state_bytes:
            keeps.append(f"{stage.state_bytes:,} B of state per request")
        lines.append(
            f"{stage.name} (layers {ranges(stage.layers)}) has {bytes_text(stage.kv_budget_bytes)} left and keeps "
            f"{' and '.join(keeps)}: {planned.requests[i]:,} requests of {planned.memory.context_tokens:,} tokens"
            f"{' (binds)' if i == binding else ''}."
        )
    return lines


def _in_flight(planned: Planned) -> str:
    timing, plan = planned.timing, planned.plan
    return (
        f"One token's trip takes L = {_microseconds(timing.trip_ns)}, the busiest stage "
        f"T = {_microseconds(timing.busiest_ns)}: L/T -> {timing.knee} microbatches fill the pipeline. Credits: "
        f"{plan.defaults.credits}; the published rule puts stages x microbatch = "
        f"{len(plan.stages) * plan.defaults.microbatch} requests in flight."
    )


def _bounds(planned: Planned) -> list[str]:
    """What stages of every kind wait for, in a decode step of the nominal microbatch and in a prefill chunk."""
    plan, context = planned.plan, planned.memory.context_tokens
    batch, chunk = plan.defaults.microbatch, plan.defaults.batched_tokens
    loads = {
        f"A decode step of {batch:,} sequences at {context:,} tokens": decode_totals(batch, context),
        f"A prefill chunk of {min(chunk, context):,} tokens": prefill_totals(chunk, context),
    }
    lines = []
    for what, totals in loads.items():
        seen: dict[tuple[int, ...], list[int]] = {}
        for i in range(len(plan.stages)):
            seen.setdefault(tuple(v.cost for v in plan.visits if v.stage == i), []).append(i)
        for costs, stages in seen.items():
            parts = [bounds_ns(plan.costs[cost], totals) for cost in costs]
            ns = {kind: sum(part[kind] for part in parts) for kind in KINDS}
            names = f"stage-{stages[0]}" if len(stages) == 1 else f"stages {ranges(tuple(stages))}"
            time = _microseconds(round(sum(ns.values())))
            lines.append(f"{what} takes {time} on {names}, bound by: {shares_text(ns)}.")
    return lines
