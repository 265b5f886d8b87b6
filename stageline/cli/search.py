"""`stageline search`: every division of some devices, each run on a workload."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.progress import Progress

from stageline.catalog.loader import Catalog
from stageline.cli import output
from stageline.cli.candidates import Candidate, Trial, carry_out_all
from stageline.cli.lookup import find_model
from stageline.cli.on_dask import carry_out_on
from stageline.cli.plan import in_formats
from stageline.cli.plan_flags import PlanFlags, options_of, wired
from stageline.cli.search_flags import SearchFlags
from stageline.cli.search_output import print_trials, save_plot, with_cost
from stageline.cli.speculation_flags import SpeculationFlags
from stageline.engine.settings import Scheduling
from stageline.errors import BadInput, DoesNotFit, RunFailed, SloMissed, UsageError
from stageline.hardware.device import Device
from stageline.model.spec import ModelSpec
from stageline.plan.build import Planned, make_plan
from stageline.plan.options import PlanOptions
from stageline.plan.schema import Plan
from stageline.plan.shapes import Shape, shapes
from stageline.plan.timing import decode_totals, pipeline_timing
from stageline.report.slo import Slo, parse_slo

MAX_JOBS = 256
CarryOut = Callable[[Sequence[Candidate]], Iterator[Trial]]


class LeftOut(NamedTuple):
    """A division that was not run, and why."""

    name: str
    reason: str


def search(
    models: Annotated[str, Parameter(help="catalogue name or config.json; several separated by commas")],
    devices_of: Annotated[str, Parameter(help="catalogue name of a device; several separated by commas")],
    /,
    *,
    asked: SearchFlags,
    jobs: Annotated[int | None, Parameter(help="processes (default: one per core)")] = None,
    scheduler: Annotated[str | None, Parameter(help="address of a Dask scheduler whose workers run the trials")] = None,
    resume: Annotated[Path | None, Parameter(help="file that keeps finished trials; a second run goes on")] = None,
    plot: Annotated[Path | None, Parameter(help="write a chart here (.svg or .png)")] = None,
    json: Annotated[bool, Parameter(negative="", help="print trials as JSON")] = False,
    flags: PlanFlags = PlanFlags(),  # noqa: B008
    speculation: SpeculationFlags = SpeculationFlags(),  # noqa: B008
) -> int:
    """Try every way to divide devices among tensor, expert, context and pipeline ranks and replicas."""
    asked.check()
    if jobs is not None and not 1 <= jobs <= MAX_JOBS:
        raise UsageError(f"--jobs {jobs}: must lie between 1 and {MAX_JOBS}")
    if jobs is not None and scheduler is not None:
        raise UsageError(
            "--jobs counts processes of this machine and --scheduler has workers of its own: leave one out"
        )
    scheduling = msgspec.convert(speculation.given() | {"prefix_cache": asked.prefix_cache}, Scheduling)
    candidates, left = _candidates(models.split(","), devices_of.split(","), asked, scheduling, flags)
    if not candidates:
        raise _nothing_fits(asked.devices, left)
    carry_out = partial(carry_out_all, jobs=jobs or os.cpu_count() or 1)
    if scheduler is not None:
        carry_out = partial(carry_out_on, scheduler)
    trials = [with_cost(t, asked.price) for t in _run(candidates, resume, carry_out)]
    if all(t.failure is not None for t in trials):
        raise RunFailed(f"all {len(trials)} divisions failed; the first: {trials[0].failure}")
    curve = len(asked.counts()) > 1
    if plot:
        save_plot(trials, plot, curve=curve)
    if json:
        output.print_json({"trials": trials, "left_out": [x._asdict() for x in left]})
    else:
        print_trials(trials, len(left), best_of_each=curve)
    if not any(t.slo_met in {None, True} for t in trials if t.failure is None):
        raise SloMissed("no division meets the objective; give it more devices, or ask for less")
    return 0


def _nothing_fits(devices: str, left: Sequence[LeftOut]) -> DoesNotFit:
    why = "; ".join(f"{x.name}: {x.reason}" for x in left[:3])
    return DoesNotFit(f"none of the {len(left)} divisions of {devices} device(s) can serve this: {why}")


def _candidates(
    models: Sequence[str], devices: Sequence[str], asked: SearchFlags, scheduling: Scheduling, flags: PlanFlags
) -> tuple[list[Candidate], list[LeftOut]]:
    """What to run and what not, models and devices in the order given."""
    shelf, objective = Catalog(flags.catalog), parse_slo(asked.slo) if asked.slo else None
    base = options_of(flags, shelf)
    candidates: list[Candidate] = []
    left: list[LeftOut] = []
    for spec in [in_formats(find_model(name, shelf), flags) for name in models]:
        for device in [wired(shelf.device(name).device, flags, shelf) for name in devices]:
            for shape in _all_shapes(spec, asked):
                found = _planned(spec, device, shape, base, _bound_ns(objective, scheduling))
                if isinstance(found, LeftOut):
                    left.append(found)
                else:
                    candidates.append(_candidate(found.plan, shape, asked, scheduling))
    return candidates, left


def _all_shapes(spec: ModelSpec, asked: SearchFlags) -> Iterator[Shape]:
    for count in asked.counts():
        for shape in shapes(spec, count, asked.most_context_parallel):
            for size in asked.sizes():
                yield msgspec.structs.replace(shape, microbatch=size)


def _candidate(plan: Plan, shape: Shape, asked: SearchFlags, scheduling: Scheduling) -> Candidate:
    return Candidate(
        model=plan.model, device=plan.device, name=shape.name, devices=shape.devices, plan=plan,
        workload=asked.workload, seed=asked.seed, rate_scale=asked.rate_scale, requests=asked.requests, slo=asked.slo,
        scheduling=scheduling,
    )  # fmt: skip


def _bound_ns(objective: Slo | None, scheduling: Scheduling) -> int | None:
    """What a decode step may take at most: with every draft right it yields 1 + K tokens."""
    if objective is None or objective.tpot_ns is None:
        return None
    return objective.tpot_ns * (1 + scheduling.speculate)


def _planned(
    spec: ModelSpec, device: Device, shape: Shape, base: PlanOptions, bound_ns: int | None
) -> Planned | LeftOut:
    """The plan of a shape; left out where it does not fit or a bound already misses the objective."""
    try:
        planned = make_plan(spec, device, shape.options(base))
    except (DoesNotFit, BadInput) as error:  # too small, or not a division that this model allows
        return LeftOut(shape.name, str(error))
    plan = planned.plan
    lone = pipeline_timing(len(plan.stages), plan.visits, plan.links, plan.costs, decode_totals(1, 1)).trip_ns
    if bound_ns is not None and lone > bound_ns:
        return LeftOut(shape.name, f"a lone token's trip takes {lone:,} ns, more than the objective's TPOT allows")
    return planned


def _run(candidates: Sequence[Candidate], resume: Path | None, carry_out: CarryOut) -> list[Trial]:
    """All trials in the order of the candidates; finished ones come from the resume file."""
    done = _read(resume) if resume else {}
    missing = [c for c in candidates if c.key() not in done]
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("divisions", total=len(candidates), completed=len(candidates) - len(missing))
        for trial in carry_out(missing) if missing else ():
            done[trial.key] = trial
            if resume:
                _append(resume, trial)
            progress.advance(task)
    return [done[c.key()] for c in candidates]


def _append(path: Path, trial: Trial) -> None:
    try:
        with path.open("ab") as file:
            file.write(msgspec.json.encode(trial) + b"\n")
    except OSError as error:
        raise UsageError(f"--resume {path}: can't be written: {error.strerror}") from None


def _read(path: Path) -> dict[str, Trial]:
    """Trials of an earlier search; a last line that was cut off is done again."""
    if not path.exists():
        return {}
    lines = output.read_file(path).split(b"\n")
    found: dict[str, Trial] = {}
    for number, line in enumerate(lines[:-1], 1):
        try:
            trial = msgspec.json.decode(line, type=Trial)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadInput(f"{path}:{number}", None, f"not a trial: {error}", "give another --resume file") from None
        found[trial.key] = trial
    return found
