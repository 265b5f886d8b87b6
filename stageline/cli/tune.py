"""`stageline tune`: the settings that can move what binds in a run, each tried on its workload."""

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from stageline.api.tuning import BUDGET, run_tune
from stageline.cli import output
from stageline.cli.groups import OUTPUT, QUESTION, TRIALS
from stageline.cli.numbers import WHOLE
from stageline.cli.progress import counting_bar
from stageline.report.tuned import Objective, TuneResult, effect

_SHOWN = 6  # trials without a gain that are listed, and those that were left out


def tune_command(
    directory: Annotated[Path, Parameter(help="Run directory, made by stageline run -o.")],
    *,
    objective: Annotated[Objective, Parameter(group=QUESTION, help="What shall get better.")] = "throughput",
    slo: Annotated[
        str | None,
        Parameter(group=QUESTION, help="Objective per request, like ttft=2s,tpot=50ms; default: the run's own."),
    ] = None,
    budget: Annotated[
        int, WHOLE, Parameter(group=TRIALS, help="Trials of the whole workload; shorter ones count by their length.")
    ] = BUDGET,
    jobs: Annotated[
        int | None, WHOLE, Parameter(group=TRIALS, help="Processes that run trials; default: one per core.")
    ] = None,
    trust: Annotated[
        list[str] | None,
        Parameter(
            group=TRIALS, negative="", help="A policy package.module:Class of the run that may be imported; repeatable."
        ),
    ] = None,
    json: Annotated[bool, Parameter(negative="", group=OUTPUT, help="Print tune.json instead of lines.")] = False,
) -> None:
    """Try the settings that can move what binds in a run, on the same workload, and show what each one does."""
    with counting_bar("trials") as watch:
        workers = os.cpu_count() or 1 if jobs is None else jobs
        found = run_tune(directory, objective, slo, budget, workers, trust=trust or (), watch=watch)
    if json:
        output.print_json(found)
    else:
        output.print_plain(lines(found))


def lines(found: TuneResult) -> list[str]:
    """What helped, what did not, and the command of the best."""
    tried = f"{found.full_trials} runs of the whole workload"
    short = f", {found.short_trials} of its first requests" if found.short_trials else ""
    helped = found.helped()
    shown = [f"tried for {found.objective}: {tried}{short}", ""]
    shown += [f"  {m.flags}: {effect(found.before, m.figures, found.objective)}" for m in helped]
    others = [m for m in found.measured if not m.helps]
    if others:
        shown += ["", "no gain:"] if helped else ["no gain:"]
        shown += [f"  {m.flags}: {effect(found.before, m.figures, found.objective)}" for m in others[:_SHOWN]]
        shown += [f"  and {len(others) - _SHOWN} more (--json has all)"] * (len(others) > _SHOWN)
    if found.load:
        with_best = " with the best settings" if found.best is not None else ""
        shown += ["", f"another load, or other replicas{with_best} (they change what is served or paid):"]
        for m in found.load:
            shown += [f"  {m.flags}: {effect(found.before, m.figures, found.objective)}", f"    {m.command}"]
    left_out = [f"left out: {flags}: {reason}" for flags, reason in found.left_out.items()]
    shown += left_out[:_SHOWN]
    shown += [f"left out: {len(left_out) - _SHOWN} more (--json has all)"] * (len(left_out) > _SHOWN)
    if found.best is None:
        return [*shown, "", f"nothing found: no setting that was tried makes {found.objective} better"]
    best = effect(found.before, found.best.figures, found.objective)
    return [*shown, "", f"best: {found.best.flags}: {best}", found.command]
