"""Running what is in a run directory again: as it was, with other settings, or only its first requests."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import msgspec

from stageline.api.execution import WorkloadText
from stageline.api.job import Job
from stageline.api.running import carry_out
from stageline.api.scheduling import settle
from stageline.api.worker_pool import worker_pool
from stageline.engine.fleet import Fleet
from stageline.engine.types import StageRecord
from stageline.errors import BadInput, StagelineError, UsageError
from stageline.plan.replicas import with_replicas
from stageline.plan.schema import Plan
from stageline.report.measure import parse_measure
from stageline.report.rerun import Rerun
from stageline.report.rundir import RERUN, read_run_pools, read_stages, read_summary
from stageline.report.slo import parse_slo
from stageline.report.summary import Summary
from stageline.report.tuned import Figures, figures_of
from stageline.units import NS_PER_S, parse_ratio
from stageline.workload import open_workload

LESS = Fraction(4, 5)  # of the load, to see what it does


class StoredRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run directory whose run can be made again."""

    directory: Path
    plan: Plan
    summary: Summary
    stages: list[StageRecord]
    rerun: Rerun

    @property
    def requests(self) -> int:
        """How many there were."""
        return self.summary.requests["total"]


class Variation(msgspec.Struct, frozen=True, kw_only=True):
    """A stored run with other settings; picklable, for other processes. `changes` are fields of `Scheduling`."""

    plan: Plan
    rerun: Rerun
    changes: Mapping[str, int | str | bool] = {}
    requests: int | None = None  # only the first; None: all


RunVariations = Callable[[Sequence[Variation]], Iterator[Figures | str]]


def stored_run(directory: Path) -> StoredRun:
    """What a directory holds. Raises BadInput when it can't be run again, and says why."""
    summary = read_summary(directory)
    if not summary.complete:
        raise BadInput(str(directory), None, "the run broke off, so that there is nothing to compare with", RERUN)
    source = read_run_pools(directory).source
    if isinstance(source, Fleet):
        reason = "it is the run of a fleet, and only runs of one plan can be made again with other settings"
        raise BadInput(str(directory), None, reason, "run one pool's plan alone with stageline run -o")
    if summary.rerun is None:
        reason = (
            "its summary does not say what it was made from (live requests, an opened workload or an older version)"
        )
        raise BadInput(
            str(directory), None, reason, "run the workload with stageline run -o; for a live session its recording"
        )
    if not summary.requests["total"]:
        raise BadInput(str(directory), None, "no request arrived", "run a workload that has some")
    if not summary.requests["finished"]:
        reason = "no request finished, so that there is nothing to make better"
        raise BadInput(str(directory), None, reason, "run shorter requests, or a plan with room for them")
    stages = read_stages(directory)
    return StoredRun(directory=directory, plan=source, summary=summary, stages=stages, rerun=summary.rerun)


def with_one_window(stored: StoredRun) -> StoredRun:
    """The run with a measurement window that is the same for all trials, so that their rates can be compared.

    Where `auto` found a steady state, that stretch of time; the whole run where it found none, or where nothing was
    served in the window.
    """
    rerun, measured = stored.rerun, stored.summary.measured
    if not (rerun.warmup or rerun.measure_window):
        return stored
    kept = {"warmup": rerun.warmup, "measure_window": rerun.measure_window}
    if measured is None or measured.remark or not measured.served_requests_per_s:
        kept = {"warmup": "", "measure_window": ""}
    elif rerun.measure_window == "auto":
        from_ns, to_ns = (round(edge * NS_PER_S) for edge in (measured.from_s, measured.to_s))
        kept = {"warmup": "", "measure_window": f"{from_ns}ns..{to_ns}ns"}
    return msgspec.structs.replace(stored, rerun=msgspec.structs.replace(rerun, **kept))


def rerun_job(variation: Variation) -> Job:
    """The run of a variation. Raises UsageError or BadInput for settings or a workload that can't be used."""
    r = variation.rerun
    limit = r.requests or None
    if variation.requests is not None:
        limit = min(variation.requests, limit or variation.requests)
    opened = open_workload(
        r.workload,
        seed=r.seed,
        rate_scale=r.rate_scale,
        requests=limit,
        skip_bad_rows=r.skip_bad_rows,
        sort=r.sort,
    )
    slo = parse_slo(r.slo) if r.slo else None
    return Job(
        plan=variation.plan,
        workload=opened,
        scheduling=settle(r.scheduling, variation.changes, variation.plan, slo=slo, own=True),
        seed=r.seed,
        slo=slo,
        window=parse_measure(r.warmup or None, r.measure_window or None),
        price=r.price,
        text=WorkloadText(
            text=r.workload,
            seed=r.seed,
            rate_scale=r.rate_scale,
            requests=limit or 0,
            skip_bad_rows=r.skip_bad_rows,
            sort=r.sort,
        ),
        command="stageline tune",
    )


def other_loads(stored: StoredRun) -> Iterator[tuple[str, Plan, Rerun]]:
    """What could be asked of another plan or another load: its flag, and what a run of it is made of."""
    plan, rerun = stored.plan, stored.rerun
    numbers = [plan.replicas + 1] + ([plan.replicas - 1] if plan.replicas > 1 else [])
    for number in numbers:
        yield f"--replicas {number}", with_replicas(plan, number), rerun
    scale = parse_ratio(rerun.rate_scale, "--rate-scale") * LESS
    yield f"--rate-scale {scale}", plan, msgspec.structs.replace(rerun, rate_scale=str(scale))


def run_variation(variation: Variation) -> Figures | str:
    """Its figures, or why it can't be run."""
    try:
        return figures_of(carry_out(rerun_job(variation)).summary, variation.plan.devices)
    except StagelineError as error:
        return str(error)


def run_variations(variations: Sequence[Variation], jobs: int) -> Iterator[Figures | str]:
    """In the order given, over `jobs` processes; one job stays in this process."""
    if jobs == 1 or len(variations) < 2:
        yield from map(run_variation, variations)
        return
    with worker_pool(min(jobs, len(variations))) as pool:
        yield from pool.map(run_variation, variations)


def checked_again(stored: StoredRun) -> Figures:
    """The figures of the run, made once more. Raises UsageError when it is no longer the same run."""
    found = run_variation(Variation(plan=stored.plan, rerun=stored.rerun))
    if isinstance(found, str):
        raise UsageError(f"{stored.directory}: the run can't be made again: {found}")
    if found.digest != stored.summary.digest:
        raise UsageError(
            f"{stored.directory}: made again, the run has another digest: the workload {stored.rerun.workload} or "
            f"Stageline has changed since; make the run again with -o"
        )
    return found
