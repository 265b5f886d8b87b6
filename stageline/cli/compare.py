"""`stageline compare`: runs side by side."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from stageline.cli.output import console, print_json, write_file
from stageline.errors import UsageError
from stageline.report.compare import compare as compare_runs
from stageline.report.compare import read_runs
from stageline.report.compare_table import comparison_table
from stageline.report.page.compare import comparison_page


def compare(
    *directories: Annotated[Path, Parameter(help="run directories, made by stageline run -o")],
    html: Annotated[Path | None, Parameter(help="also write the comparison as one page")] = None,
    json: Annotated[bool, Parameter(negative="", help="print JSON instead of tables")] = False,
) -> None:
    """What changed between runs, and what it did to latency, throughput and bubbles; the first run is the measure."""
    if len(directories) < 2:
        raise UsageError("compare needs two run directories or more; stageline report shows one")
    runs = read_runs(directories)
    comparison = compare_runs(runs)
    if html is not None:
        write_file(html, comparison_page(comparison, runs).encode())
        sys.stderr.write(f"page: {html}\n")
    if json:
        print_json(comparison)
    else:
        console().print(comparison_table(comparison))
