"""What a plan's costs say at a run's own mean context: a token's trip and its collectives."""

from collections.abc import Sequence

import msgspec

from stageline.cost.entries import CostEntry, Roofline
from stageline.plan.schema import Plan
from stageline.plan.timing import PipelineTiming, decode_totals, pipeline_timing
from stageline.report.summary import Summary


def mean_context(summary: Summary) -> int:
    """Tokens that a decode step reads on average: prompt and half of the output."""
    count = max(1, summary.requests["total"])
    return max(1, (summary.prompt_tokens + summary.output_tokens // 2) // count)


def in_flight(summary: Summary) -> float:
    """Requests served at once, by Little's law: rate x time after the first admission."""
    whole, queue = summary.e2e_s.mean, summary.queue_s.mean
    return 0.0 if whole is None or queue is None else summary.requests_per_s * (whole - queue)


def token_pace(plan: Plan, summary: Summary, costs: Sequence[CostEntry] | None = None) -> PipelineTiming:
    """One decode step of a lone request at the run's mean context."""
    totals = decode_totals(1, mean_context(summary))
    return pipeline_timing(len(plan.stages), plan.visits, plan.links, plan.costs if costs is None else costs, totals)


def collective_share(plan: Plan, summary: Summary) -> float:
    """Share of a lone token's trip that collectives take."""
    quiet = token_pace(plan, summary, [_without_collectives(entry) for entry in plan.costs])
    return 1 - quiet.trip_ns / token_pace(plan, summary).trip_ns


def _without_collectives(entry: CostEntry) -> CostEntry:
    if not isinstance(entry, Roofline):
        return entry
    groups = tuple(msgspec.structs.replace(group, collectives=()) for group in entry.groups)
    return msgspec.structs.replace(entry, groups=groups)
