"""What every engine does at the end of a run: find its window and add up the router's totals."""

from collections.abc import Sequence as Seq

from stageline.engine.conductor import Conductor
from stageline.engine.types import RunTotals, StageRecord


def window_of(conductor: Conductor) -> tuple[int, int]:
    """Times of the first arrival and the last completion, in ns."""
    start = conductor.first_arrival_ns or 0
    return start, max(start, conductor.last_completion_ns)


def close_run(conductor: Conductor, records: Seq[StageRecord]) -> RunTotals:
    """The totals of a run, given its stage records by replica and stage."""
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
