"""Which engine carries a run out: the seam between `run` and whatever computes it."""

from typing import Literal

from stageline.engine.settings import Scheduling
from stageline.engine.types import Observer, RunTotals, Source, StageObserver
from stageline.errors import UsageError
from stageline.plan.schema import Plan

EngineName = Literal["inprocess", "cluster"]


def execute(
    engine: EngineName,
    plan: Plan,
    scheduling: Scheduling,
    source: Source,
    *,
    seed: int,
    observer: Observer,
    stage_observer: StageObserver | None = None,
    paranoid: bool = False,
    cluster: str | None = None,
) -> RunTotals:
    """Runs to the end. All engines give the same records, in the same order per request."""
    if engine != "inprocess":
        raise UsageError(f"--engine {engine}: this build has no cluster engine; use --engine inprocess")
    if cluster is not None:
        raise UsageError(f"--cluster {cluster} needs --engine cluster")
    from stageline.engine import inprocess  # noqa: PLC0415  (other engines must not pay for loading it)

    return inprocess.run(
        plan,
        scheduling,
        source,
        seed=seed,
        observer=observer,
        stage_observer=stage_observer,
        paranoid=paranoid,
    )
