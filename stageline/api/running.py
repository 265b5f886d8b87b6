"""Running: a plan and a workload through emulated time. The commands and every search run through `carry_out`."""

import os
import shlex
import time
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Unpack

import msgspec

from stageline.api.arguments import require, require_flags, require_path, scale_text
from stageline.api.execution import Cluster, WorkloadText, execute
from stageline.api.fleet_running import settled_fleet
from stageline.api.fleets import FleetPlan, as_plan_or_fleet
from stageline.api.job import Job, RunStatus, WatchRun, opened
from stageline.api.keywords import SchedulingKeywords, checked
from stageline.api.planning import ModelPlan
from stageline.api.results import RunResult
from stageline.api.run_arguments import cluster_named, engine_named, measure_named, objective_named, workload_named
from stageline.api.scheduling import Preset, base_scheduling, settle
from stageline.api.second_run import Announced, FirstRun, SecondRun, needed
from stageline.api.serving import engine_scheduling
from stageline.engine.fleet import Fleet
from stageline.engine.settings import MAX_SEED, Scheduling
from stageline.engine.types import Observer, RequestRecord, RunTotals
from stageline.errors import DISK_ERRORS, BadInput, UsageError
from stageline.plan.schema import Plan
from stageline.report.pools import RunPools
from stageline.report.rerun import Rerun
from stageline.report.run_writer import RunWriter
from stageline.report.settings import settings_in_force
from stageline.report.slo import Slo
from stageline.report.spans.recorder import TraceRecorder
from stageline.report.summary import RunFacts
from stageline.runtime.logs import say
from stageline.workload import DescribedWorkload, open_workload


def run(
    plan: ModelPlan | Plan | FleetPlan | Fleet | str | os.PathLike[str],
    workload: str | os.PathLike[str] | DescribedWorkload,
    *,
    seed: int = 0,
    requests: int | None = None,
    rate_scale: str | float | Fraction = 1,
    skip_bad_rows: bool = False,
    sort: bool = False,
    slo: str | Slo | None = None,
    warmup: str | None = None,
    measure_window: str | None = None,
    price: float | None = None,
    serving_engine: str | None = None,
    preset: Preset | None = None,
    output: str | os.PathLike[str] | None = None,
    events: bool = False,
    paranoid: bool = False,
    keep_requests: bool = True,
    cluster: Cluster | str | None = None,
    **scheduling: Unpack[SchedulingKeywords],
) -> RunResult:
    """Run a workload through a plan in emulated time: `stageline run`.

    `plan` is what `plan_model` or `plan_fleet` returned, a Plan, a Fleet, or the path of a plan file. `workload` is a
    trace file, a text such as "poisson:rate=4,input=1024,output=128" (docs/workloads.md), or an opened workload, which
    can be run once. `requests`, `rate_scale`, `skip_bad_rows` and `sort` say how a file or text is opened. `slo` is a
    text such as "ttft=2s,tpot=50ms": the summary says whether it was met. `warmup` ("50" requests or "30s"),
    `measure_window` ("auto", "all", "60s", "30s..90s") and `price` (of a device's hour) say where rates are measured
    and what they cost. `output` is the run directory to write, with `events` also events.jsonl. `keep_requests=False`
    leaves `requests` empty and saves the memory. `SchedulingKeywords` has the other keywords; what is not given is that
    of `serving_engine` (a catalogue name or a TOML file; None: the plan's). `cluster` is the HOST:PORT of a router.
    `preset="vllm"` is an older name of `serving_engine="vllm-v1"`.

    Raises BadInput for a file or text that can't be used, UsageError for settings that contradict each other, and
    RunFailed or Unavailable for a cluster that fails.

    >>> import stageline
    >>> plan = stageline.plan_model("llama-3.1-8b", "h100-sxm")
    >>> run = stageline.run(plan, "poisson:rate=4,requests=20,input=512,output=32", kv="grow", slo="ttft=2s")
    >>> run.summary.requests["finished"], run.summary.slo.met, len(run.requests)
    (20, True, 20)
    """
    flags = {"events": events, "paranoid": paranoid, "keep_requests": keep_requests}
    require_flags("run", {"skip_bad_rows": skip_bad_rows, "sort": sort, **flags})
    loaded, objective, engine = as_plan_or_fleet(plan), objective_named(slo), engine_named(serving_engine, preset)
    asked = {"warmup": warmup, "measure_window": measure_window, "price": price}
    window, price = measure_named(warmup, measure_window, price)
    given = checked(run, scheduling, SchedulingKeywords)
    seed = check_seed(require("run: seed", seed, int))
    text, opened = _opened(workload, seed, rate_scale, requests, skip_bad_rows=skip_bad_rows, sort=sort)
    ready, settings = _settled(loaded, opened, seed, given, objective, engine)
    job = Job(
        plan=ready, workload=opened, scheduling=settings, seed=seed, slo=objective,
        window=window, price=price, paranoid=paranoid, cluster=cluster_named(cluster), text=text, serving_engine=engine,
        inputs=input_files(plan, workload),
        command=_command(text, {"seed": seed, "serving_engine": engine, "slo": slo, **asked, **given}),
    )  # fmt: skip
    directory = None if output is None else _directory(require_path("run: output", output))
    return carry_out(job, directory=directory, events=events, keep_requests=keep_requests)


def _settled(
    plan: Plan | Fleet,
    workload: DescribedWorkload,
    seed: int,
    given: Mapping[str, Any],
    slo: Slo | None,
    engine: str | None,
) -> tuple[Plan | Fleet, Scheduling]:
    """What runs, and its settings; a fleet has them itself. Raises UsageError."""
    if isinstance(plan, Fleet):
        return settled_fleet(plan, workload, seed, given, slo=slo, serving_engine=engine), Scheduling()
    base = base_scheduling(workload, seed, engine_scheduling(plan, engine))
    return plan, settle(base, given, plan, slo=slo)


def carry_out(
    job: Job,
    *,
    directory: Path | None = None,
    events: bool = False,
    trace: TraceRecorder | None = None,
    keep_requests: bool = False,
    watch: WatchRun | None = None,
) -> RunResult:
    """Run a job to its end. When it breaks off, for whatever reason, its directory is closed as incomplete.

    `watch` is called once, before the run, with what tells how far it is. Raises as `run` does.
    """
    if events and directory is None:
        raise UsageError("--events writes events.jsonl into a run directory: give one with -o DIR")
    inside = events or trace is not None
    again = needed(job, inside=inside)
    started = time.perf_counter()
    with RunWriter(
        job.plan, directory, slo=job.slo, window=job.window, events=events, trace=trace, inputs=job.inputs,
        second=again is not None,
    ) as writer:  # fmt: skip
        status = RunStatus(job.workload, writer, times=2 if again else 1)
        if watch is not None:
            watch(status)
        attempts = _Attempts()
        writer.begin(_facts(job, 0.0, attempts))
        kept = _Kept(writer) if keep_requests else None
        first = FirstRun(kept or writer)
        try:
            announced = directory is not None or trace is not None
            totals = _execute(job, writer, first if again else kept or writer, attempts, announced=announced)
            if again is not None:
                what = " and ".join(["its events"] * inside + ["its laws"] * job.paranoid)
                say(f"the cluster's run is done; for {what} it is made again in this process, and compared")
                SecondRun(job, first, writer).run(status.again(opened(again)), totals)
        except BaseException as error:
            writer.abort(_facts(job, time.perf_counter() - started, attempts))
            if directory is not None and isinstance(error, OSError) and error.errno in DISK_ERRORS:
                raise writer.broken(error) from error
            raise
        summary = writer.finish(totals, _facts(job, time.perf_counter() - started, attempts))
    requests = kept.in_order() if kept else ()
    return RunResult(plan=job.plan, summary=summary, stages=totals.stages, requests=requests, directory=directory)


def check_seed(seed: int) -> int:
    """The seed. Raises BadInput for a seed that is not between 0 and 2**63 - 1."""
    if not 0 <= seed <= MAX_SEED:
        raise BadInput("--seed", seed, "not between 0 and 2**63 - 1", "give a seed in that range")
    return seed


def _opened(
    workload: str | os.PathLike[str] | DescribedWorkload,
    seed: int,
    rate_scale: str | float | Fraction,
    requests: int | None,
    *,
    skip_bad_rows: bool,
    sort: bool,
) -> tuple[WorkloadText | None, DescribedWorkload]:
    """The workload, and how it was asked for; None for one that was open already."""
    named = workload_named(workload)
    scale = scale_text("run: rate_scale", rate_scale)
    requests = require("run: requests", requests, int, type(None))
    if not isinstance(named, str):
        if requests is not None or scale != "1" or skip_bad_rows or sort:
            raise UsageError(
                "run: requests, rate_scale, skip_bad_rows and sort say how a file or text is opened, and this workload "
                "is open: give them to open_workload"
            )
        return None, named
    text = WorkloadText(
        text=named, seed=seed, rate_scale=scale, requests=requests or 0, skip_bad_rows=skip_bad_rows, sort=sort
    )
    return text, open_workload(
        text.text,
        seed=seed,
        rate_scale=text.rate_scale,
        requests=requests,
        skip_bad_rows=skip_bad_rows,
        sort=sort,
    )


def _directory(output: str | os.PathLike[str] | None) -> Path | None:
    if output is not None and not os.fspath(output):
        raise BadInput("output", output, "it is empty", "name a directory; '.' is the current one")
    return None if output is None else Path(output)


def input_files(plan: object, workload: object) -> tuple[Path, ...]:
    """The paths that a run may be made of: the plan's, the workload's, and those in a workload's options."""
    texts = [os.fspath(given) for given in (plan, workload) if isinstance(given, (str, os.PathLike))]
    named = [option.partition("=")[2] for text in texts for option in text.split(",")]
    return tuple(Path(text) for text in [*texts, *named] if text)


class _Attempts:
    """How often a run was begun: more than once after the death of a server."""

    def __init__(self) -> None:
        self.count = 1

    def again(self, reason: str) -> None:
        """It is done again."""
        self.count += 1
        say(f"{reason}; attempt {self.count} begins, and is compared with what is known of the run")


def _execute(job: Job, writer: RunWriter, observer: Observer, attempts: _Attempts, *, announced: bool) -> RunTotals:
    return execute(
        job.plan,
        job.scheduling,
        Announced(job.workload, writer) if announced else job.workload,
        seed=job.seed,
        observer=observer,
        stage_observer=writer.stage_observer,
        members=writer.members,
        paranoid=job.paranoid and job.cluster is None,
        cluster=job.cluster,
        text=job.text,
        again=attempts.again,
    )


def _facts(job: Job, wall_s: float, attempts: _Attempts) -> RunFacts:
    plan = job.plan
    if isinstance(plan, Fleet):
        pools = RunPools(plan)
        settings, limit = pools.common_settings(), max(pool.credits for pool in pools.pools)
    else:
        settings = settings_in_force(plan, job.scheduling, job.serving_engine)
        limit = job.scheduling.credits or plan.defaults.credits
    return RunFacts(
        engine="inprocess" if job.cluster is None else "cluster",
        seed=job.seed,
        command=job.command,
        workload=job.workload.description,
        rows=msgspec.structs.asdict(job.workload.counts),
        wall_s=round(wall_s, 3),
        attempts=attempts.count,
        credits=limit,
        settings=settings,
        price_per_device_hour=job.price,
        closed=job.workload.reactive,
        rerun=None if job.text is None or isinstance(plan, Fleet) else _rerun(job, job.text),
    )


def _rerun(job: Job, text: WorkloadText) -> Rerun:
    return Rerun(
        workload=text.text,
        seed=text.seed,
        rate_scale=text.rate_scale,
        requests=text.requests,
        skip_bad_rows=text.skip_bad_rows,
        sort=text.sort,
        slo="" if job.slo is None else job.slo.flag(),
        scheduling=job.scheduling,
        warmup=job.window.warmup,
        measure_window=job.window.text,
        price=job.price,
    )


def _command(text: WorkloadText | None, settings: dict[str, object]) -> str:
    """The call in the form of a command, so that `compare` finds what changed between calls."""
    named = {"workload": text.text if text else None, **settings}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in named.items() if value not in (None, False)]
    return shlex.join(["stageline.run", *flags])


class _Kept:
    """An Observer that keeps every record besides what the writer does."""

    def __init__(self, writer: RunWriter) -> None:
        self.token = writer.token
        self._write = writer.request
        self._records: list[RequestRecord] = []

    def request(self, record: RequestRecord) -> None:
        """See Observer."""
        self._records.append(record)
        self._write(record)

    def in_order(self) -> tuple[RequestRecord, ...]:
        """All records in the order of arrival."""
        return tuple(sorted(self._records, key=lambda r: (r.arrival_ns, r.index)))
