"""`stageline report`: a run directory as tables, as the pipeline chart and as a page."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from stageline.cli.numbers import WHOLE
from stageline.cli.output import console
from stageline.errors import BadInput, UsageError
from stageline.report.chart import draw_chart
from stageline.report.digest import digest_of
from stageline.report.groups import groups_table
from stageline.report.page.render import write_page
from stageline.report.page.sheet import write_sheet
from stageline.report.perfetto.trace import write_trace
from stageline.report.rundir import (
    EVENTS_FILE,
    REQUESTS_FILE,
    RERUN,
    read_events,
    read_parts,
    read_requests,
    read_stages,
    read_summary,
)
from stageline.report.summary import Summary
from stageline.report.text_report import run_report
from stageline.report.timeline import first_microbatches
from stageline.report.tuned import read_tune

CHARTS = ("pipeline.svg", "pipeline.png")
PAGE, SHEET = "report.html", "sheet.html"


def report_command(
    directory: Annotated[Path, Parameter(help="Run directory, made by stageline run -o.")],
    *,
    chart: Annotated[bool, Parameter(help="Write pipeline.svg and pipeline.png into the directory.")] = True,
    html: Annotated[bool, Parameter(help="Write report.html, one self-contained page.")] = True,
    sheet: Annotated[
        bool, Parameter(negative="", help="Write sheet.html too: plan, service, room, cost, on one sheet to print.")
    ] = False,
    perfetto: Annotated[
        Path | None, Parameter(help="Also write a trace for ui.perfetto.dev; needs a run with --events.")
    ] = None,
    microbatches: Annotated[
        int | None, WHOLE, Parameter(help="Number of microbatches in the chart's timeline; needs a run with --events.")
    ] = None,
    verify: Annotated[bool, Parameter(negative="", help="Recompute the digest from the files and compare it.")] = False,
) -> None:
    """Print the tables of a run, draw its pipeline chart and write its HTML page."""
    if microbatches is not None and microbatches < 1:
        raise BadInput("--microbatches", microbatches, "not 1 or more", "give a number of microbatches")
    summary = read_summary(directory)
    if not summary.complete:
        raise BadInput(str(directory), None, "the run broke off and has no stages", "run it again with -o")
    if verify:
        _verify(directory, summary)
    stages = read_stages(directory)
    _check_requests(directory, summary)
    if chart:
        _chart(directory, summary, microbatches)
    if html:
        _page(directory, PAGE, write_page)
    if sheet:
        _page(directory, SHEET, write_sheet)
    if perfetto is not None:
        _trace(directory, perfetto)
    groups = groups_table(read_parts(directory), read_events(directory), summary.first.credits, summary.replica_name(0))
    tuned = read_tune(directory, summary.digest)
    shown = run_report(summary, stages, groups, directory=directory, tuned=tuned)
    console().print(shown)  # last, so that nothing is printed about a damaged run


def _check_requests(directory: Path, summary: Summary) -> None:
    """Raises BadInput for a damaged line, and for lines that are missing."""
    lines, total = sum(1 for _ in read_requests(directory)), summary.requests["total"]
    if lines != total:
        raise BadInput(f"{directory / REQUESTS_FILE}", lines, f"summary.json says {total} requests", RERUN)


def _verify(directory: Path, summary: Summary) -> None:
    actual = digest_of(directory)
    if actual != summary.digest:
        reason = f"its files have the digest {actual}"
        raise BadInput(f"{directory}/summary.json, digest", summary.digest, reason, "run it again with -o")


def _chart(directory: Path, summary: Summary, microbatches: int | None) -> None:
    stages = read_stages(directory)
    count = microbatches or max(24, 2 * sum(record.replica == 0 for record in stages))
    timeline = first_microbatches(read_events(directory), summary.first.visits, count)
    paths = [directory / name for name in CHARTS]
    try:
        draw_chart(summary, stages, timeline, paths)
    except OSError as error:
        raise UsageError(f"{directory}: the chart can't be written: {error.strerror}") from None
    sys.stderr.write(f"chart: {', '.join(map(str, paths))}\n")


def _page(directory: Path, name: str, write: Callable[[Path, Path], None]) -> None:
    path = directory / name
    try:
        write(directory, path)
    except OSError as error:
        raise UsageError(f"{path}: can't be written: {error.strerror}") from None
    sys.stderr.write(f"page: {path}\n")


def _trace(directory: Path, path: Path) -> None:
    if not (directory / EVENTS_FILE).exists():
        raise UsageError(f"--perfetto needs events, and {directory} has none: make the run with --events")
    try:
        written = write_trace(directory, path)
    except OSError as error:
        raise UsageError(f"{path}: can't be written: {error.strerror}") from None
    cut = f" (the first {written.services:,} services; the run has more)" if written.cut else ""
    sys.stderr.write(f"trace: {path}{cut}\n")
