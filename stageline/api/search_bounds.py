"""Bounds that a search proves before it runs anything: what they refuse can't meet the objective, whatever is tried.

A request counts as good only if it finished within every bound of the objective, and `required` of them must be good
(`report/slo.py`). Each function below says why nothing better than its bound exists.
"""

import math
from collections.abc import Callable

import msgspec

from stageline.api.workload_totals import WorkloadTotals
from stageline.cost.entries import CostEntry, LayerGroup, Roofline
from stageline.cost.service import compile_cost, min_service_ns
from stageline.cost.totals import BatchTotals
from stageline.engine.fleet import Pool
from stageline.engine.settings import MAX_COUNT, Scheduling
from stageline.plan.schema import Plan
from stageline.plan.timing import decode_totals, pipeline_timing
from stageline.report.slo import Slo
from stageline.units import figure_text, format_duration

ROUNDING = 1000  # a step of 1 us or more is rounded by less than a 1000th of it


def refused(plan: Plan, scheduling: Scheduling, totals: WorkloadTotals, slo: Slo) -> str | None:
    """Why this plan can't meet the objective; None: no bound forbids it."""
    required = math.ceil(slo.attainment * totals.count)
    return (
        _trip_too_long(plan, scheduling, totals, slo, required)
        or _prompts_too_long(plan, scheduling, totals, slo, required)
        or _too_much_work(plan, scheduling, totals, slo, required)
    )


def refused_apart(pools: tuple[Pool, Pool], totals: WorkloadTotals, slo: Slo) -> str | None:
    """Why a fleet that prefills in one pool and decodes in the other can't meet the objective.

    For fleets in which every prompt is prefilled in the prefill pool: its first token is there no sooner, and the pool
    does all work of prefill. Every token after the first takes a trip in the decode pool, which does all work of
    decode. Hand-overs, and prompts that are prefilled once more after a preemption, only add to that.
    """
    required, (prefill, decode) = math.ceil(slo.attainment * totals.count), pools
    found = (
        (prefill, _prompts_too_long(prefill.plan, prefill.scheduling, totals, slo, required)),
        (decode, _trip_too_long(decode.plan, decode.scheduling, totals, slo, required)),
        (prefill, _too_much_work(prefill.plan, prefill.scheduling, totals, slo, required, _of_prefill)),
        (decode, _too_much_work(decode.plan, decode.scheduling, totals, slo, required, _of_decode)),
    )
    return next((f"its {pool.name} pool: {reason}" for pool, reason in found if reason is not None), None)


def _of_prefill(work: BatchTotals) -> BatchTotals:
    return msgspec.structs.replace(work, decode_sequences=0, decode_tokens=0, decode_kv_tokens=0, decode_pairs=0)


def _of_decode(work: BatchTotals) -> BatchTotals:
    return msgspec.structs.replace(work, prefill_sequences=0, prefill_tokens=0, prefill_kv_tokens=0, prefill_pairs=0)


def _of_both(work: BatchTotals) -> BatchTotals:
    return work


def _trip_too_long(plan: Plan, scheduling: Scheduling, totals: WorkloadTotals, slo: Slo, required: int) -> str | None:
    """The trip time against TPOT.

    Every token after the first needs a whole trip of its own, and a trip with one sequence at one token of context is
    the shortest, since service times grow with every total. With every draft right a trip yields 1 + K tokens. So no
    request of two tokens or more can be good if that trip is longer; those with one token have no TPOT.
    """
    if slo.tpot_ns is None or plan_has_rings(plan):
        return None
    spared = sum(out < 2 for out in totals.outputs)
    fixed = len(set(totals.outputs)) == 1  # of a closed loop, which requests come depends on the order of replies
    if spared >= required or (totals.reactive and (spared or not fixed)):
        return None
    lone = pipeline_timing(len(plan.stages), plan.visits, plan.links, plan.costs, decode_totals(1, 1)).trip_ns
    jitter = sum(link.jitter_ns // 2 for link in plan.links)  # its mean, which the timing counts
    if lone - jitter <= slo.tpot_ns * (1 + scheduling.speculate):
        return None
    return f"a lone token's trip takes {lone:,} ns, more than the objective's TPOT allows"


def _prompts_too_long(
    plan: Plan, scheduling: Scheduling, totals: WorkloadTotals, slo: Slo, required: int
) -> str | None:
    """The compute roof of one prompt against TTFT.

    All tokens of a prompt pass every stage, in whatever chunks, and a stage's time is at least that of one microbatch
    with all of them (see `_summed_ns`): the first token can't come before.
    """
    if slo.ttft_ns is None or totals.reactive or _caches(scheduling, totals) or not _bounded(plan):
        return None
    quick = sorted(totals.prompts)[required - 1] if required else 0  # so many must be as short as this, or shorter
    least = _summed_ns(plan, _prompt(quick))
    if least <= slo.ttft_ns:
        return None
    return (
        f"{quick:,} prompt tokens, which a request of the best {float(slo.attainment):.0%} has, take a stage "
        f"{format_duration(least)} of computing, more than the objective's TTFT"
    )


def _too_much_work(
    plan: Plan,
    scheduling: Scheduling,
    totals: WorkloadTotals,
    slo: Slo,
    required: int,
    part: Callable[[BatchTotals], BatchTotals] = _of_both,
) -> str | None:
    """The work of all good requests, or the `part` of it that these replicas do, against the time until the last
    deadline.

    Whatever `required` requests are good, their totals are at least those of `WorkloadTotals.least`, field by field. R
    replicas share them; with f the time of a stage for one microbatch of given totals, the stage is busy for at least
    the sum of f(totals of replica r), which is at least f(all totals): the busiest replica has an Rth of that or more.
    It also serves at least D / (R M) decode microbatches, D decode tokens, M the most sequences of a microbatch, each
    of which reads the stage's weights. All of it must fit between the first arrival and the latest deadline.
    """
    time_ns = totals.deadline_ns(slo)
    if time_ns is None or not _bounded(plan):
        return None
    work = part(totals.least(required, prompts=not _caches(scheduling, totals)))
    busy = _summed_ns(plan, work) / plan.replicas
    largest = scheduling.microbatch or plan.defaults.microbatch
    per_step = largest * (1 + scheduling.speculate)
    least_step = max(_by_stage(plan, [min_service_ns(entry) for entry in plan.costs]))
    if largest < MAX_COUNT:
        busy = max(busy, (work.decode_tokens // per_step) * least_step / plan.replicas)
    if busy <= time_ns:
        return None
    return (
        f"its busiest stage needs {figure_text(busy / time_ns)} x the time until the last deadline for the least work "
        f"of {float(slo.attainment):.0%} of the requests"
    )


def _caches(scheduling: Scheduling, totals: WorkloadTotals) -> bool:
    """Whether a prefix cache may spare prefill."""
    return scheduling.prefix_cache and totals.shares_prompts


def _prompt(tokens: int) -> BatchTotals:
    pairs = tokens * (tokens + 1) // 2
    return BatchTotals(prefill_sequences=1, prefill_tokens=tokens, prefill_kv_tokens=tokens, prefill_pairs=pairs)


def _summed_ns(plan: Plan, work: BatchTotals) -> float:
    """Least time of the busiest stage for microbatches that sum up to these totals.

    The time of a `_bounded` entry is a sum of terms max(a x, b), a x and b min(1, x), each of which is subadditive:
    the times of two microbatches are at least that of one with the totals of both.
    """
    services = [compile_cost(entry).service_ns(work) for entry in plan.costs]
    return max(_by_stage(plan, services)) * (ROUNDING - 1) / ROUNDING


def _by_stage(plan: Plan, services: list[int]) -> list[int]:
    found = [0] * len(plan.stages)
    for visit in plan.visits:
        found[visit.stage] += services[visit.cost]
    return found


def plan_has_rings(plan: Plan) -> bool:
    """Whether context ranks pass KV or queries round a ring, whose time is not monotone."""
    return any(isinstance(entry, Roofline) and any(map(_has_ring, entry.groups)) for entry in plan.costs)


def _bounded(plan: Plan) -> bool:
    """Whether the sum rule of `_summed_ns` holds for every cost of the plan."""
    return all(_entry_bounded(entry) for entry in plan.costs)


def _entry_bounded(entry: CostEntry) -> bool:
    if not isinstance(entry, Roofline) or entry.overlap or min_service_ns(entry) < ROUNDING:
        return False
    return not any(_has_ring(group) or _has_phase(group) for group in entry.groups)


def _has_ring(group: LayerGroup) -> bool:
    return group.attention is not None and group.attention.ring is not None


def _has_phase(group: LayerGroup) -> bool:
    """A measured attention kernel, whose mean span falls with every sequence."""
    parts = [group.attention, *(group.more_attention or ())]
    spans = [a for a in parts if a is not None and (a.decode or a.prefill)]
    return bool(spans) or (group.linear is not None and bool(group.linear.decode or group.linear.prefill))
