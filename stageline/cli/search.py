"""`stageline search`: every division of some devices, each run on a workload."""

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from stageline.api.searching import choose_runner, run_search
from stageline.cli import output
from stageline.cli.groups import OUTPUT, TRIALS
from stageline.cli.numbers import WHOLE
from stageline.cli.plan_flags import DesignFlags
from stageline.cli.progress import counting_bar
from stageline.cli.search_flags import SearchFlags
from stageline.cli.search_output import print_trials, save_plot
from stageline.cli.speculation_flags import SpeculationFlags
from stageline.errors import SloMissed, UsageError


def search_command(
    model: Annotated[str, Parameter(help="Catalogue names or config.json paths of models, separated by commas.")],
    device: Annotated[str, Parameter(help="Catalogue names of devices, separated by commas.")],
    /,
    *,
    flags: SearchFlags,
    jobs: Annotated[
        int | None, WHOLE, Parameter(group=TRIALS, help="Number of processes that run trials; default: one per core.")
    ] = None,
    scheduler: Annotated[
        str | None, Parameter(group=TRIALS, help="Address of a Dask scheduler whose workers run the trials.")
    ] = None,
    resume: Annotated[
        Path | None, Parameter(group=TRIALS, help="File that keeps finished trials, so that they are not run again.")
    ] = None,
    plot: Annotated[Path | None, Parameter(group=OUTPUT, help="Write a chart here (.svg or .png).")] = None,
    json: Annotated[bool, Parameter(negative="", group=OUTPUT, help="Print trials as JSON.")] = False,
    design: DesignFlags = DesignFlags(),  # noqa: B008  (frozen)
    speculation: SpeculationFlags = SpeculationFlags(),  # noqa: B008  (frozen)
) -> int:
    """Try every way to divide devices among tensor, expert, context and pipeline ranks and replicas."""
    if jobs is not None and scheduler is not None:
        raise UsageError("--jobs sets the number of local processes, --scheduler uses Dask workers: give one of them")
    runner = choose_runner(os.cpu_count() or 1 if jobs is None else jobs, scheduler)
    question, keywords = flags.question(speculation), design.keywords()
    with counting_bar("divisions") as watch:
        names = model.split(","), device.split(",")
        found = run_search(question, *names, keywords, design.catalog_dirs, runner, resume, watch)
    curve = len(question.devices) > 1
    if plot:
        save_plot(found, plot, curve=curve)
    if json:
        output.print_json({"trials": found.trials, "left_out": [x._asdict() for x in found.skipped]})
    else:
        print_trials(found, best_of_each=curve, requests=question.requests)
    if not any(t.slo_met in {None, True} for t in found.trials if t.failure is None):
        raise SloMissed("no division meets the objective; give it more devices, or relax the objective")
    return 0
