"""`stageline run`: a plan and a workload through emulated time."""

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from stageline.cli.address import router_address
from stageline.cli.execution import EngineName, execute
from stageline.cli.flags import SchedulingFlags, WorkloadFlags
from stageline.cli.output import console, print_json
from stageline.cli.progress import Watched, progress_of
from stageline.cli.security_flags import SecurityFlags
from stageline.cli.trace_flags import TraceFlags
from stageline.engine.settings import Scheduling
from stageline.engine.types import RunTotals
from stageline.errors import SloMissed, UsageError
from stageline.plan.schema import Plan
from stageline.report.slo import parse_slo
from stageline.report.summary import RunFacts, Summary
from stageline.report.tables import run_report
from stageline.report.writer import RunWriter
from stageline.runtime.plans import read_plan
from stageline.workload import DescribedWorkload
from stageline.workload.recording import RecordedWorkload


def run(
    plan: Annotated[Path, Parameter(help="plan file, made by stageline plan -o")],
    workload: WorkloadFlags,
    scheduling: SchedulingFlags = SchedulingFlags(),  # noqa: B008  (frozen)
    traces: TraceFlags = TraceFlags(),  # noqa: B008  (frozen)
    *,
    output: Annotated[Path | None, Parameter(name=("-o", "--output"), help="run directory to write")] = None,
    slo: Annotated[str | None, Parameter(help="ttft=2s,tpot=50ms,attainment=0.99; missed: exit code 3")] = None,
    engine: Annotated[EngineName, Parameter(help="who computes: the result is the same")] = "inprocess",
    cluster: Annotated[
        str | None, Parameter(help="run on the cluster whose router is at HOST:PORT, by TLS: grpcs://HOST:PORT")
    ] = None,
    security: SecurityFlags = SecurityFlags(),  # noqa: B008  (frozen)
    events: Annotated[bool, Parameter(negative="", help="also write events.jsonl; needs -o")] = False,
    paranoid: Annotated[bool, Parameter(negative="", help="check the laws while it runs, on the event heap")] = False,
    json: Annotated[bool, Parameter(negative="", help="print summary.json instead of tables")] = False,
) -> None:
    """Run a workload through a plan in emulated time and show where the time went."""
    if events and output is None:
        raise UsageError("--events writes events.jsonl into a run directory: give one with -o DIR")
    if cluster is not None:
        router_address("--cluster", cluster)
    objective = None if slo is None else parse_slo(slo)
    loaded = read_plan(plan)
    opened = workload.open()
    if isinstance(opened, RecordedWorkload):
        base = replayed(opened, loaded, workload.seed)
    else:
        base = Scheduling(hash_block_tokens=opened.hash_block_tokens)
    settings = scheduling.settings(loaded, objective, base)
    name: EngineName = "cluster" if cluster else engine
    with (
        traces.recorder(loaded, workload.seed) as trace,
        RunWriter(loaded, output, slo=objective, events=events, trace=trace) as writer,
    ):
        job = _Job(loaded, settings, opened, workload, writer, name, cluster, security, paranoid)
        totals, summary = job.carry_out()
    _print(summary, totals, json)
    if isinstance(opened, RecordedWorkload) and opened.end.digest:
        same = "the same digest as" if opened.end.digest == summary.digest else "another digest than"
        sys.stderr.write(f"stageline: {same} the recorded session\n")
    if summary.slo is not None and not summary.slo.met:
        raise SloMissed(f"SLO missed: {summary.slo.objective}; {summary.slo.attainment:.2%} were good")


def replayed(opened: RecordedWorkload, plan: Plan, seed: int) -> Scheduling:
    """The settings that a live session was recorded with; flags go before them. UsageError for another seed."""
    header = opened.header
    if header.seed != seed:
        raise UsageError(f"the session was recorded with seed {header.seed}: give --seed {header.seed}")
    if header.plan_digest != plan.digest():
        sys.stderr.write("stageline: the session was recorded on another plan; its digest will differ\n")
    return header.scheduling


class _Job(msgspec.Struct, frozen=True):
    """Everything that one run needs."""

    plan: Plan
    settings: Scheduling
    workload: DescribedWorkload
    flags: WorkloadFlags
    writer: RunWriter
    engine: EngineName
    cluster: str | None
    security: SecurityFlags
    paranoid: bool

    def carry_out(self) -> tuple[RunTotals, Summary]:
        """Runs; when the run breaks off, for whatever reason, what there is gets closed as incomplete."""
        started = time.perf_counter()
        try:
            with progress_of(self.writer) as bar:
                totals = execute(
                    self.engine,
                    self.plan,
                    self.settings,
                    Watched(self.workload, self.writer, bar),
                    seed=self.flags.seed,
                    observer=self.writer,
                    stage_observer=self.writer.stage_observer,
                    members=self.writer.trace,
                    paranoid=self.paranoid,
                    cluster=self.cluster,
                    security=self.security,
                    spec=self.flags.spec(),
                )
        except BaseException:
            self.writer.abort(self._facts(time.perf_counter() - started))
            raise
        return totals, self.writer.finish(totals, self._facts(time.perf_counter() - started))

    def _facts(self, wall_s: float) -> RunFacts:
        return RunFacts(
            engine=self.engine,
            seed=self.flags.seed,
            command=shlex.join(["stageline", *sys.argv[1:]]),
            workload=self.workload.description,
            rows=msgspec.structs.asdict(self.workload.counts),
            wall_s=round(wall_s, 3),
            credits=self.settings.credits or self.plan.defaults.credits,
        )


def _print(summary: Summary, totals: RunTotals, as_json: bool) -> None:
    if as_json:
        print_json(summary)
        return
    console().print(run_report(summary, totals.stages))
