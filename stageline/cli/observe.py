"""`stageline observe`: a workload against a server that is not known yet, kept for `stageline calibrate`."""

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from stageline.api.files import write_file
from stageline.cli.directory import DIRECTORY
from stageline.cli.flags import WorkloadFlags
from stageline.cli.groups import OUTPUT, SERVER
from stageline.cli.load import finish_load, watched_load
from stageline.cli.load_flags import ApiFlags, CallFlags
from stageline.cli.output import command_line, console, print_json
from stageline.errors import BadInput
from stageline.load.observation import OBSERVATION_FILE, Observation, SeenMetrics
from stageline.load.observing import observe
from stageline.load.options import LoadOptions
from stageline.load.tables import load_report
from stageline.units import NS_PER_S, parse_duration_ns


def observe_command(
    url: Annotated[str, Parameter(group=SERVER, help="URL of an OpenAI-compatible server, http(s)://HOST:PORT.")],
    /,
    workload: WorkloadFlags,
    api: ApiFlags = ApiFlags(),  # noqa: B008  (frozen)
    calls: CallFlags = CallFlags(),  # noqa: B008  (frozen)
    *,
    output: Annotated[
        Path, DIRECTORY, Parameter(name=("-o", "--output"), group=OUTPUT, help="Directory to write, for calibrate.")
    ],
    metrics: Annotated[
        str, Parameter(group=SERVER, show_default=False, help="URL of its metrics; default: /metrics of the server.")
    ] = "",
    every: Annotated[str, Parameter(group=SERVER, help="Wall time between two looks at the metrics.")] = "5s",
    wall: Annotated[
        bool, Parameter(negative="", group=OUTPUT, help="Read all times as wall time, not as emulated time.")
    ] = False,
    json: Annotated[bool, Parameter(negative="", group=OUTPUT, help="Print observation.json.")] = False,
) -> int:
    """Run a workload against a server and keep what calibrate needs; see docs/twin.md."""
    pause_ns = parse_duration_ns(every, "--every")
    if not pause_ns:
        raise BadInput("--every", every, "must be longer than 0", "give a time such as 5s")
    fields = api.called(url) | calls.options()
    options = LoadOptions(**fields, seed=workload.seed, wall=wall, directory=output, command=command_line())
    found, result = watched_load(
        options,
        workload,
        lambda opened, clock, watch: observe(
            options, opened, clock, watch, metrics_url=metrics, every_s=pause_ns / NS_PER_S
        ),
    )
    write_file(output / OBSERVATION_FILE, msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    if json:
        print_json(found)
    else:
        console().print(load_report(result.summary))
        console().print(*_lines(found), f"written to {output}", sep="\n", soft_wrap=True, highlight=False)
    return finish_load(result, output)


def _lines(found: Observation) -> list[str]:
    seen = found.metrics
    if not seen.scrapes:
        return [f"metrics: none from {seen.url} ({seen.failure}); --metrics names another address"]
    if not seen.engine:
        return [f"metrics: {seen.scrapes} scrapes of {seen.url}; they carry no names of vLLM's or SGLang's"]
    return [f"metrics: {seen.scrapes} scrapes of {seen.engine}'s names: {', '.join(_peaks(seen))}"]


def _peaks(seen: SeenMetrics) -> list[str]:
    named = (
        (seen.running_peak, "at most {:,.0f} running"),
        (seen.waiting_peak, "at most {:,.0f} waiting"),
        (seen.kv_usage_peak, "KV at most {:.1%} full"),
        (seen.preemptions, "{:,.0f} preemptions"),
        (seen.prefix_hit_ratio, "{:.1%} of prompt tokens found in the prefix cache"),
    )
    return [text.format(value) for value, text in named if value is not None]
