"""The end of a run, the same on every engine: its window, and what the router counted."""

from collections.abc import Sequence

from stageline.engine.conductor import Conductor
from stageline.engine.types import RunTotals, StageRecord


def window_of(conductor: Conductor) -> tuple[int, int]:
    """First arrival and last completion, in ns."""
    start = conductor.first_arrival_ns or 0
    return start, max(start, conductor.last_completion_ns)


def close_run(conductor: Conductor, records: Sequence[StageRecord]) -> RunTotals:
    """The totals of a run whose stages left these records (by replica, stage)."""
    start, end = window_of(conductor)
    router = conductor.router
    refusals = [sum(r.mirror.refusals[i] for r in router.replicas) for i in range(len(router.route.plan.stages))]
    most = max(refusals, default=0)
    formed = sum(r.formed for r in router.replicas)
    prefix = tuple(r.cache.stats() for r in router.replicas if r.cache is not None)
    speculation = tuple(r.speculation.stats() for r in router.replicas if r.speculation is not None)
    return RunTotals(
        window_start_ns=start, window_end_ns=end, stages=tuple(records), requests=router.arrived, microbatches=formed,
        stage_visits=formed * router.route.visits, binding_stage=refusals.index(most) if most else None,
        prefix=prefix, speculation=speculation,
    )  # fmt: skip
