"""What every engine does at the end of a run: find its window and add up the router's totals."""

from collections.abc import Sequence as Seq

from stageline.engine.conductor import Conductor
from stageline.engine.router import Router
from stageline.engine.types import RunTotals, StageRecord


def window_of(conductor: Conductor) -> tuple[int, int]:
    """Times of the first arrival and the last completion, in ns."""
    start = conductor.first_arrival_ns or 0
    return start, max(start, conductor.last_completion_ns)


def close_run(conductor: Conductor, records: Seq[StageRecord]) -> RunTotals:
    """The totals of a run, given its stage records by replica and stage."""
    start, end = window_of(conductor)
    router = conductor.router
    refusals = _refusals(router)
    most = max(refusals, default=0)
    formed = sum(r.formed for r in router.replicas)
    prefix = tuple(r.cache.stats() for r in router.replicas if r.cache is not None)
    speculation = tuple(r.speculation.stats() for r in router.replicas if r.speculation is not None)
    return RunTotals(
        window_start_ns=start, window_end_ns=end, stages=tuple(records), requests=router.arrived, microbatches=formed,
        stage_visits=sum(r.formed * r.route.visits for r in router.replicas),
        binding_stage=refusals.index(most) if most else None, prefix=prefix, speculation=speculation,
        tiers=router.loads.stats() if router.loads is not None else (),
    )  # fmt: skip


def _refusals(router: Router) -> list[int]:
    """How often each stage had no room, by pool and stage."""
    sums: list[int] = []
    for pool in router.fleet.pools:
        found = [r.mirror.refusals for r, p in zip(router.replicas, router.fleet.pool_of, strict=True) if p is pool]
        sums += [sum(column) for column in zip(*found, strict=True)]
    return sums
