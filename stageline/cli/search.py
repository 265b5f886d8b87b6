"""`stageline search`: the cheapest division of devices and settings that serve a workload."""

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from stageline.api.files import write_file
from stageline.api.resuming import Runs
from stageline.api.searching import run_search, trial_runner
from stageline.cli import output
from stageline.cli.groups import OUTPUT, TRIALS
from stageline.cli.measure_flags import WindowFlags
from stageline.cli.numbers import WHOLE
from stageline.cli.plan_flags import FixedFlags
from stageline.cli.progress import counting_bar
from stageline.cli.search_flags import LimitFlags, SearchFlags
from stageline.cli.search_output import answer_document, print_search, save_plot
from stageline.cli.speculation_flags import SpeculationFlags
from stageline.cli.varied_flags import VariedFlags
from stageline.errors import RunFailed, SloMissed, UsageError
from stageline.report.refusals import refused_text


def search_command(
    model: Annotated[str, Parameter(help="Catalogue names or config.json paths of models, separated by commas.")],
    device: Annotated[str, Parameter(help="Catalogue names of devices, separated by commas.")],
    /,
    *,
    flags: SearchFlags,
    limits: LimitFlags = LimitFlags(),  # noqa: B008  (frozen)
    varied: VariedFlags = VariedFlags(),  # noqa: B008  (frozen)
    measure: WindowFlags = WindowFlags(),  # noqa: B008  (frozen)
    jobs: Annotated[
        int | None, WHOLE, Parameter(group=TRIALS, help="Number of processes that run trials; default: one per core.")
    ] = None,
    scheduler: Annotated[
        str | None, Parameter(group=TRIALS, help="Address of a Dask scheduler whose workers run the trials.")
    ] = None,
    resume: Annotated[
        Path | None, Parameter(group=TRIALS, help="File that keeps finished trials, so that they are not run again.")
    ] = None,
    out: Annotated[
        Path | None,
        Parameter(name=("-o", "--output"), group=OUTPUT, help="Write the answer here as a fleet file, in TOML."),
    ] = None,
    plot: Annotated[Path | None, Parameter(group=OUTPUT, help="Write a chart here (.svg or .png).")] = None,
    json: Annotated[
        bool, Parameter(negative="", group=OUTPUT, help="Print the answer and all trials as JSON.")
    ] = False,
    fixed: FixedFlags = FixedFlags(),  # noqa: B008  (frozen)
    speculation: SpeculationFlags = SpeculationFlags(),  # noqa: B008  (frozen)
) -> int:
    """Find the cheapest division of devices, and the settings, that serve a workload."""
    if jobs is not None and scheduler is not None:
        raise UsageError("--jobs sets the number of local processes, --scheduler uses Dask workers: give one of them")
    width = os.cpu_count() or 1 if jobs is None else jobs
    question = flags.question((model, device), varied, limits, fixed, speculation, measure)
    with counting_bar("divisions") as watch, trial_runner(width, scheduler) as runner:
        found = run_search(question, Runs(runner, width, resume, watch))
    curve = len({t.devices for t in found.trials}) > 1
    if out is not None and found.launch is not None:
        write_file(out, found.launch.fleet.encode())
    if plot:
        save_plot(found, plot, curve=curve)
    if json:
        output.print_json(answer_document(found))
    else:
        print_search(found, question, best_of_each=curve, written=out)
    best = found.best()
    if best is None:
        raise RunFailed(f"no request finished in any of {len(found.trials)} trials: {refused_text()}")
    if best.slo_met is False:
        raise SloMissed(
            f"no trial meets the objective; in the best {best.attainment or 0.0:.2%} of the requests are good"
            f"{' with one replica lost' if best.only_one_lost else ''}"
        )
    return 0
