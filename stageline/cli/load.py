"""`stageline load`: sends a workload to a server and says how it fared."""

import asyncio
import os
import resource
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import uvloop
from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.text import Text

from stageline.cli.flags import WorkloadFlags
from stageline.cli.output import console, print_json, write_file
from stageline.cli.security_flags import SecurityFlags
from stageline.errors import BadInput, RunFailed, SloMissed, UsageError
from stageline.load.clock import WallClock
from stageline.load.driver import LoadProgress, Turns
from stageline.load.html import html_report
from stageline.load.options import MAX_CONNECTIONS, Endpoint, LoadOptions, PromptKind, checked_url
from stageline.load.ramp import parse_ramp
from stageline.load.recorder import REPORT_FILE, SUMMARY_FILE
from stageline.load.schedule import NO_WARMUP, parse_warmup
from stageline.load.tables import load_report, slo_text
from stageline.report.slo import parse_slo
from stageline.units import NS_PER_S, parse_duration_ns

if TYPE_CHECKING:
    from stageline.load.run import LoadResult, OnProgress


def load(
    workload: WorkloadFlags,
    *,
    url: Annotated[str, Parameter(help="http(s)://HOST:PORT of any OpenAI-compatible server, or grpc(s)://HOST:PORT")],
    security: SecurityFlags = SecurityFlags(),  # noqa: B008  (frozen)
    endpoint: Annotated[Endpoint, Parameter(help="which API")] = "completions",
    prompts: Annotated[PromptKind, Parameter(help="of completions: token ids (exact) or text")] = "ids",
    model: Annotated[str, Parameter(help="name of the model; default: the first that the server lists")] = "",
    slo: Annotated[str | None, Parameter(help="ttft=2s,tpot=50ms,attainment=0.99; missed: exit code 3")] = None,
    wall: Annotated[bool, Parameter(negative="", help="rates, times and SLO in wall time, not emulated")] = False,
    warmup: Annotated[str | None, Parameter(help="first requests (50) or time (30s) to leave out of figures")] = None,
    ramp: Annotated[str | None, Parameter(help="rate steps, such as 0.5:30s,1:60s,2")] = None,
    duration: Annotated[str | None, Parameter(help="send nothing that is due later")] = None,
    turns: Annotated[int, Parameter(help="calls per request, each with the conversation so far")] = 1,
    think: Annotated[str, Parameter(help="from a reply to the next turn")] = "0",
    connections: Annotated[int, Parameter(help="calls at once; more wait, and that counts as latency")] = 1024,
    timeout: Annotated[str, Parameter(help="wall time after which a call has failed")] = "600s",
    ignore_eos: Annotated[bool, Parameter(help="ask for exact lengths (ignore_eos, min_tokens)")] = True,
    extra_body: Annotated[str, Parameter(help="members of every request body, as JSON")] = "",
    output: Annotated[Path | None, Parameter(name=("-o", "--output"), help="directory for results")] = None,
    json: Annotated[bool, Parameter(negative="", help="print summary.json instead of tables")] = False,
) -> int:
    """Send a workload to a server, open loop or closed, and report its latency from the intended start."""
    options = LoadOptions(
        url=checked_url(url),
        endpoint=endpoint,
        prompts=prompts,
        model=model,
        api_key=security.api_key or os.environ.get("OPENAI_API_KEY", ""),
        tls=security.files(),
        wall=wall,
        steps=() if ramp is None else parse_ramp(ramp),
        warmup=NO_WARMUP if warmup is None else parse_warmup(warmup),
        duration_ns=None if duration is None else _some_time("--duration", duration),
        turns=Turns(_between("--turns", turns, 1 << 14), parse_duration_ns(think, "--think")),
        connections=_between("--connections", connections, MAX_CONNECTIONS),
        timeout_s=_some_time("--timeout", timeout) / NS_PER_S,
        ignore_eos=ignore_eos,
        extra_body=extra_body,
        slo=None if slo is None else parse_slo(slo),
        directory=output,
        seed=workload.seed,
        command=shlex.join(["stageline", *sys.argv[1:]]),
    )
    return _report(_run(options, workload), output, as_json=json)


def _between(flag: str, value: int, most: int) -> int:
    if not 1 <= value <= most:
        raise BadInput(flag, value, f"not between 1 and {most}", "give a number in that range")
    return value


def _run(options: LoadOptions, workload: WorkloadFlags) -> "LoadResult":
    from stageline.load.run import run_load  # noqa: PLC0415  (aiohttp is slow to load)

    _allow_files(options.connections)
    source = workload.open()
    with _bar() as watch, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run_load(options, source, WallClock(), watch))


def _report(result: "LoadResult", directory: Path | None, *, as_json: bool) -> int:
    """Files, then stdout. Raises SloMissed or RunFailed, whose exit codes are the command's."""
    summary = result.summary
    if directory is not None:
        text = msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"
        write_file(directory / SUMMARY_FILE, text)
        write_file(directory / REPORT_FILE, html_report(summary, result.recorder.timeline).encode())
    if as_json:
        print_json(summary)
    else:
        console().print(load_report(summary))
    if result.interrupted:
        return 130
    if not summary.calls["finished"]:
        raise RunFailed(f"no call of {summary.calls['total']} finished: {'; '.join(summary.remarks[:3])}")
    if summary.slo is not None and not summary.slo.met:
        raise SloMissed(slo_text(summary))
    return 0


def _allow_files(connections: int) -> None:
    """Every connection is an open file: raises the process's own limit as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 256
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        if limit < wanted:
            raise UsageError(f"--connections {connections}: this process may open {hard} files; raise ulimit -n")


class _Counts(ProgressColumn):
    """Read at each refresh."""

    def __init__(self) -> None:
        super().__init__()
        self.source: LoadProgress | None = None

    def render(self, task: Task) -> Text:
        """See ProgressColumn."""
        source = self.source
        if source is None:
            return Text("connecting")
        task.completed = source.fraction
        return Text(f"{source.done:,} done, {source.in_flight:,} in flight, {source.output_tokens:,} tokens")


@contextmanager
def _bar() -> Iterator["OnProgress"]:
    """A bar on stderr, on a terminal only."""
    terminal = Console(stderr=True)
    if not terminal.is_terminal:
        yield lambda progress: None
        return
    counts = _Counts()
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), counts
    with Bars(*columns, TimeElapsedColumn(), console=terminal, transient=True) as bars:
        bars.add_task("sent", total=1.0)

        def watch(progress: LoadProgress) -> None:
            counts.source = progress

        yield watch


def _some_time(flag: str, text: str) -> int:
    """A duration in ns that is not 0."""
    duration_ns = parse_duration_ns(text, flag)
    if not duration_ns:
        raise BadInput(flag, text, "no time at all", "give a longer one, like 60s")
    return duration_ns
