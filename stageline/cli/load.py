"""`stageline load`: send a workload to a server and report its latency."""

import asyncio
import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import uvloop
from cyclopts import Group, Parameter

from stageline.api.files import write_file
from stageline.cli.flags import WorkloadFlags
from stageline.cli.numbers import WHOLE
from stageline.cli.output import command_line, console, print_json
from stageline.cli.progress import progress_bar
from stageline.cli.security_flags import SecurityFlags
from stageline.errors import BadInput, RunFailed, SloMissed, UsageError
from stageline.load.clock import WallClock
from stageline.load.driver import Progress, Turns
from stageline.load.html import html_report
from stageline.load.options import MAX_CONNECTIONS, Endpoint, LoadOptions, PromptKind, checked_url
from stageline.load.ramp import parse_ramp
from stageline.load.recorder import REPORT, SUMMARY
from stageline.load.schedule import NO_WARMUP, parse_warmup
from stageline.load.tables import load_report, slo_text
from stageline.report.slo import parse_slo
from stageline.units import NS_PER_S, parse_duration_ns

if TYPE_CHECKING:
    from stageline.load.run import Result

_SERVER = Group.create_ordered("Server")
_CALLS = Group.create_ordered("Calls")
_OUTPUT = Group.create_ordered("Output")


def load(
    workload: WorkloadFlags,
    *,
    url: Annotated[
        str,
        Parameter(
            group=_SERVER, help="URL, http(s)://HOST:PORT of an OpenAI-compatible server or grpc(s)://HOST:PORT."
        ),
    ],
    endpoint: Annotated[Endpoint, Parameter(group=_SERVER, help="API to call.")] = "completions",
    model: Annotated[
        str,
        Parameter(group=_SERVER, show_default=False, help="Name of the model; default: the first one that it lists."),
    ] = "",
    security: SecurityFlags = SecurityFlags(),  # noqa: B008  (frozen)
    prompts: Annotated[
        PromptKind, Parameter(group=_CALLS, help="Send prompts of completions as token ids (exact), or as text.")
    ] = "ids",
    turns: Annotated[
        int, WHOLE, Parameter(group=_CALLS, help="Calls per request, each with the conversation so far.")
    ] = 1,
    think: Annotated[str, Parameter(group=_CALLS, help="Time from a reply to the next turn, like 5s.")] = "0",
    ramp: Annotated[str | None, Parameter(group=_CALLS, help="Steps of the rate, like 0.5:30s,1:60s,2.")] = None,
    duration: Annotated[
        str | None, Parameter(group=_CALLS, help="Time after which nothing more is sent, like 60s.")
    ] = None,
    connections: Annotated[
        int, WHOLE, Parameter(group=_CALLS, help="Calls in flight at most; others wait, which counts as latency.")
    ] = 1024,
    timeout: Annotated[str, Parameter(group=_CALLS, help="Wall time after which a call has failed.")] = "600s",
    ignore_eos: Annotated[bool, Parameter(group=_CALLS, help="Ask for exact lengths (ignore_eos, min_tokens).")] = True,
    extra_body: Annotated[
        str, Parameter(group=_CALLS, show_default=False, help="Members of every request body, as JSON.")
    ] = "",
    slo: Annotated[
        str | None,
        Parameter(group=_OUTPUT, help="Objective, like ttft=2s,tpot=50ms,attainment=0.99; missed: exit code 3."),
    ] = None,
    wall: Annotated[
        bool, Parameter(negative="", group=_OUTPUT, help="Take rates, times and SLO in wall time, not emulated time.")
    ] = False,
    warmup: Annotated[
        str | None, Parameter(group=_OUTPUT, help="Requests (50) or time (30s) at the start that figures leave out.")
    ] = None,
    output: Annotated[
        Path | None, Parameter(name=("-o", "--output"), group=_OUTPUT, help="Directory for results.")
    ] = None,
    json: Annotated[bool, Parameter(negative="", group=_OUTPUT, help="Print summary.json instead of tables.")] = False,
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
        command=command_line(),
    )
    return _report(_run(options, workload), output, as_json=json)


def _between(flag: str, value: int, most: int) -> int:
    if not 1 <= value <= most:
        raise BadInput(flag, value, f"not between 1 and {most:,}", "give a number in that range")
    return value


def _run(options: LoadOptions, workload: WorkloadFlags) -> "Result":
    from stageline.load.run import run_load  # noqa: PLC0415  (aiohttp is slow to load)

    _allow_files(options.connections)
    opened = workload.open()
    with progress_bar("sent", _counts) as watch, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run_load(options, opened, WallClock(), watch))


def _report(result: "Result", directory: Path | None, *, as_json: bool) -> int:
    """Files, then stdout. Raises SloMissed or RunFailed, whose exit codes are the command's."""
    summary = result.summary
    if directory is not None:
        text = msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"
        write_file(directory / SUMMARY, text)
        write_file(directory / REPORT, html_report(summary, result.recorder.timeline).encode())
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
    """Raise the process's own limit of open files, which every connection is, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 256
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        if limit < wanted:
            raise UsageError(f"--connections {connections}: this process may open {hard} files; raise ulimit -n")


def _counts(progress: Progress) -> str:
    return f"{progress.done:,} done, {progress.in_flight:,} in flight, {progress.output_tokens:,} tokens"


def _some_time(flag: str, text: str) -> int:
    """A duration in ns that is not 0."""
    duration_ns = parse_duration_ns(text, flag)
    if not duration_ns:
        raise BadInput(flag, text, "must be longer than 0", "give a time such as 60s")
    return duration_ns
