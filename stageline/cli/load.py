"""`stageline load`: send a workload to a server and report its latency."""

import asyncio
import resource
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
import uvloop

from stageline.api.files import write_file
from stageline.cli.flags import WorkloadFlags
from stageline.cli.load_flags import CallFlags, ResultFlags, TargetFlags
from stageline.cli.output import command_line, console, print_json
from stageline.cli.progress import progress_bar
from stageline.errors import RunFailed, SloMissed, UsageError
from stageline.load.clock import Clock, WallClock
from stageline.load.driver import LoadProgress
from stageline.load.html import html_report
from stageline.load.options import LoadOptions
from stageline.load.recorder import REPORT_FILE, SUMMARY_FILE
from stageline.load.tables import load_report, slo_text
from stageline.workload import DescribedWorkload

if TYPE_CHECKING:
    from stageline.load.run import LoadResult

Result = TypeVar("Result")


def load_command(
    workload: WorkloadFlags,
    target: TargetFlags,
    calls: CallFlags = CallFlags(),  # noqa: B008  (frozen)
    *,
    result: ResultFlags = ResultFlags(),  # noqa: B008  (frozen)
) -> int:
    """Send a workload to a server, open or closed loop, and report throughput and latency."""
    fields = target.options() | calls.options() | result.options()
    options = LoadOptions(**fields, seed=workload.seed, command=command_line())
    return _report(_run(options, workload), result.output, as_json=result.json)


def _run(options: LoadOptions, workload: WorkloadFlags) -> "LoadResult":
    from stageline.load.run import run_load  # noqa: PLC0415  (aiohttp is slow to load)

    return watched_load(options, workload, lambda opened, clock, watch: run_load(options, opened, clock, watch))


def watched_load(
    options: LoadOptions,
    workload: WorkloadFlags,
    run: Callable[[DescribedWorkload, Clock, Callable[[LoadProgress], None]], Coroutine[None, None, Result]],
) -> Result:
    """Opens the workload and runs it on an event loop of its own, under a progress bar."""
    _allow_files(options.connections)
    opened = workload.open()
    with progress_bar("sent", _counts) as watch, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run(opened, WallClock(), watch))


def _report(result: "LoadResult", directory: Path | None, *, as_json: bool) -> int:
    """Stdout, then files. Raises SloMissed or RunFailed, whose exit codes are the command's."""
    if as_json:
        print_json(result.summary)
    else:
        console().print(load_report(result.summary))
    return finish_load(result, directory)


def finish_load(result: "LoadResult", directory: Path | None) -> int:
    """Files, and the exit code. Raises SloMissed or RunFailed, whose exit codes are the command's."""
    summary = result.summary
    if directory is not None:
        text = msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"
        write_file(directory / SUMMARY_FILE, text)
        write_file(directory / REPORT_FILE, html_report(summary, result.recorder.timeline).encode())
    if result.interrupted:
        return 130
    if not summary.calls["finished"]:
        raise RunFailed(f"no call of {summary.calls['total']} finished: {'; '.join(summary.remarks[:3])}")
    lost = summary.calls["rejected"] + summary.calls["failed"]
    if 2 * lost > summary.calls["total"]:
        raise RunFailed(f"{lost} of {summary.calls['total']} calls failed: {'; '.join(summary.remarks[:3])}")
    if summary.slo is not None and not summary.slo.met:
        raise SloMissed(slo_text(summary))
    return 0


def _allow_files(connections: int) -> None:
    """Raise the process's own limit of open files, which every connection is, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 256
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        if limit < wanted:
            raise UsageError(f"--connections {connections}: this process may open {hard} files; raise ulimit -n")


def _counts(progress: LoadProgress) -> str:
    return f"{progress.done:,} done, {progress.in_flight:,} in flight, {progress.output_tokens:,} tokens"
