"""`stageline run`: a plan and a workload through emulated time."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from stageline.api.fleet_file import named_plans
from stageline.api.fleet_running import settled_fleet
from stageline.api.fleets import read_plan_or_fleet
from stageline.api.job import Job, RunStatus
from stageline.api.placement_limits import check_price
from stageline.api.results import RunResult
from stageline.api.running import carry_out, input_files
from stageline.api.scheduling import base_scheduling
from stageline.cli.directory import DIRECTORY
from stageline.cli.flags import SchedulingFlags, WorkloadFlags
from stageline.cli.groups import DEVICES, OUTPUT
from stageline.cli.measure_flags import MeasureFlags
from stageline.cli.numbers import WHOLE
from stageline.cli.output import command_line, console, print_json
from stageline.cli.place_flags import PlaceFlags
from stageline.cli.pool_flags import PoolFlags
from stageline.cli.progress import progress_bar
from stageline.cli.signals import ending_in_order
from stageline.cli.trace_flags import TraceFlags
from stageline.engine.fleet import Fleet
from stageline.engine.settings import Scheduling
from stageline.errors import RunFailed, SloMissed, UsageError
from stageline.plan.replicas import with_replicas
from stageline.plan.schema import Plan
from stageline.report.pools import RunPools
from stageline.report.refusals import refused_text
from stageline.report.slo import Slo, parse_slo
from stageline.report.text_report import run_report
from stageline.runtime.logs import say
from stageline.workload import DescribedWorkload
from stageline.workload.recording import RecordedWorkload

EVENTS_HELP = "Write events.jsonl too; needs -o. On a cluster it takes a second run in this process."
PARANOID_HELP = (
    "Check all invariants (laws) during the run; slow. On a cluster a second run in this process checks them."
)


def run_command(
    plan: Annotated[Path, Parameter(help="Plan file, made by stageline plan -o, or fleet file.")],
    workload: WorkloadFlags,
    scheduling: SchedulingFlags = SchedulingFlags(),  # noqa: B008  (frozen)
    traces: TraceFlags = TraceFlags(),  # noqa: B008  (frozen)
    measure: MeasureFlags = MeasureFlags(),  # noqa: B008  (frozen)
    *,
    replicas: Annotated[
        int | None,
        WHOLE,
        Parameter(group=DEVICES, help="Copies of the pipeline; default: the plan's."),
    ] = None,
    slo: Annotated[
        str | None,
        Parameter(group=OUTPUT, help="Objective, like ttft=2s,tpot=50ms,attainment=0.99; exit code 3 if it is missed."),
    ] = None,
    output: Annotated[
        Path | None, DIRECTORY, Parameter(name=("-o", "--output"), group=OUTPUT, help="Run directory to write.")
    ] = None,
    events: Annotated[bool, Parameter(negative="", group=OUTPUT, help=EVENTS_HELP)] = False,
    json: Annotated[bool, Parameter(negative="", group=OUTPUT, help="Print summary.json instead of tables.")] = False,
    paranoid: Annotated[bool, Parameter(negative="", group=OUTPUT, help=PARANOID_HELP)] = False,
    place: PlaceFlags = PlaceFlags(),  # noqa: B008  (frozen)
) -> None:
    """Run a workload through a plan in emulated time and show where the time went."""
    target = place.target()
    objective = None if slo is None else parse_slo(slo)
    loaded = read_plan_or_fleet(plan, PoolFlags())
    if isinstance(loaded, Fleet):
        _check_takes_fleet(replicas)
    elif replicas is not None:
        loaded = with_replicas(loaded, replicas)
    opened = workload.open()
    loaded, settings = _settled(loaded, opened, workload.seed, scheduling, objective)
    job = Job(
        plan=loaded,
        workload=opened,
        scheduling=settings,
        seed=workload.seed,
        slo=objective,
        window=measure.window(),
        price=None if measure.price is None else check_price(measure.price),
        paranoid=paranoid,
        cluster=target,
        text=workload.text(),
        serving_engine=scheduling.engine,
        command=command_line(),
        inputs=(*input_files(plan, workload.workload), *named_plans(plan)),
    )
    with (
        ending_in_order(),
        traces.recorder(loaded, workload.seed) as trace,
        progress_bar("arrivals", _progress) as watch,
    ):
        result = carry_out(job, directory=output, events=events, trace=trace, watch=watch)
    _show(result, opened, as_json=json)


def _settled(
    plan: Plan | Fleet, workload: DescribedWorkload, seed: int, scheduling: SchedulingFlags, slo: Slo | None
) -> tuple[Plan | Fleet, Scheduling]:
    """What runs, and its settings; a fleet has them itself."""
    found: tuple[Plan | Fleet, Scheduling]
    if isinstance(plan, Fleet):
        given, engine = scheduling.given(), scheduling.engine
        found = settled_fleet(plan, workload, seed, given, slo=slo, serving_engine=engine), Scheduling()
    else:
        base = base_scheduling(workload, seed, scheduling.base(plan))
        found = plan, scheduling.settings(plan, slo, base)
    if isinstance(workload, RecordedWorkload) and workload.header.digest != plan.digest():
        kind = "fleet" if isinstance(plan, Fleet) else "plan"
        sys.stderr.write(f"stageline: the session was recorded on another {kind}; its digest will differ\n")
    return found


def _check_takes_fleet(replicas: int | None) -> None:
    """Raises UsageError for flags that are about one plan."""
    if replicas is not None:
        raise UsageError("--replicas: each pool of a fleet has its own: give replicas in its [[pool]]")


def _progress(progress: RunStatus) -> str:
    return f"{progress.requests:,} requests done"


def _compare(recording: RecordedWorkload, digest: str | None) -> None:
    """Says whether the recorded session had the same digest, or why it has none."""
    if recording.end.digest:
        same = "the same digest as" if recording.end.digest == digest else "another digest than"
        say(f"{same} the recorded session")
    elif recording.end.reason:
        say(f"the recording has no digest to compare: {recording.end.reason}")


def _show(result: RunResult, workload: DescribedWorkload, *, as_json: bool) -> None:
    """Prints the result. Raises RunFailed or SloMissed, whose exit code is the command's."""
    summary = result.summary
    if as_json:
        print_json(summary)
    else:
        console().print(run_report(summary, result.stages, directory=result.directory))
    if isinstance(workload, RecordedWorkload):
        _compare(workload, summary.digest)
    counts = summary.requests
    if counts["total"] and counts["refused"] == counts["total"]:
        pools = RunPools(result.plan)
        raise RunFailed(
            f"all {counts['total']:,} requests were refused: {refused_text(pools.max_context_tokens, pools.models)}"
        )
    if summary.slo is not None and not summary.slo.met:
        raise SloMissed(f"SLO missed: {summary.slo.objective}; {summary.slo.attainment:.2%} were good")
