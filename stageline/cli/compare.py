"""`stageline compare`: runs side by side."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from stageline.api.files import write_file
from stageline.api.results import sides
from stageline.cli.output import console, print_json
from stageline.errors import UsageError
from stageline.report.compare import compare_runs
from stageline.report.compare_table import comparison_table
from stageline.report.page.compare import comparison_page


def compare_command(
    *directories: Annotated[Path, Parameter(help="Run directories, made by stageline run -o.")],
    html: Annotated[Path | None, Parameter(help="Also write the comparison as an HTML page.")] = None,
    json: Annotated[bool, Parameter(negative="", help="Print JSON instead of tables.")] = False,
) -> None:
    """Compare runs with the first one: settings that differ, latency, throughput and bubbles."""
    if len(directories) < 2:
        raise UsageError("compare needs two run directories or more; stageline report shows one")
    runs = sides(directories)
    comparison = compare_runs(runs)
    if html is not None:
        write_file(html, comparison_page(comparison, runs).encode())
        sys.stderr.write(f"page: {html}\n")
    if json:
        print_json(comparison)
    else:
        console().print(comparison_table(comparison))
