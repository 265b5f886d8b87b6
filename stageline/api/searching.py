"""Searching: every way to divide some devices, each run on a workload."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, Unpack, cast

import msgspec

from stageline.api.arguments import (
    require,
    require_counts,
    require_names,
    require_path,
    require_paths,
    require_range,
    scale_text,
)
from stageline.api.dask_trials import run_trials_on_dask
from stageline.api.keywords import DesignKeywords, PlanKeywords, checked
from stageline.api.planning import PlanInputs, find_inputs
from stageline.api.provenance import with_provenance
from stageline.api.ranking import best_by_devices, on_front, with_cost
from stageline.api.resuming import finish_trials
from stageline.api.running import check_seed
from stageline.api.scheduling import settle
from stageline.api.trials import Candidate, RunTrials, Trial, run_trials
from stageline.engine.settings import Scheduling, plan_scheduling
from stageline.errors import BadInput, DoesNotFit, RunFailed, UsageError
from stageline.model.spec import ModelSpec
from stageline.plan.build import make_plan
from stageline.plan.schema import Plan
from stageline.plan.shapes import Shape, shapes
from stageline.plan.timing import decode_totals, pipeline_timing
from stageline.report.slo import parse_slo
from stageline.workload import open_workload

MAX_DEVICES, MAX_CONTEXT_PARALLEL, MAX_JOBS = 4096, 4096, 256
MAX_PRICE = 1e9


class Skipped(NamedTuple):
    """A division that was not run, and why."""

    name: str
    reason: str


class SearchResult(msgspec.Struct, frozen=True):
    """Every division that was run, in a fixed order, and those that were not."""

    trials: tuple[Trial, ...]
    skipped: tuple[Skipped, ...]

    def front(self) -> list[Trial]:
        """Trials that no other beats in goodput, TTFT, TPOT (p99) and devices at once; most goodput first."""
        return on_front(self.trials)

    def best_by_devices(self) -> list[Trial]:
        """For every number of devices the trial with the most goodput, then the least TPOT."""
        return best_by_devices(self.trials)


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a search is asked: the workload, the objective, and how devices may be divided."""

    workload: str
    devices: tuple[int, ...]  # all replicas together
    slo: str | None = None
    microbatches: tuple[int | None, ...] = (None,)  # None: the planner's choice
    max_context_parallel: int = 1
    requests: int | None = 200
    rate_scale: str = "1"
    seed: int = 0
    scheduling: Scheduling | None = None  # None: as the serving engine of each plan schedules, changed by `given`
    given: dict[str, Any] = {}  # fields of Scheduling
    price: float | None = None  # of one device for an hour

    def check(self) -> None:
        """Raises UsageError or BadInput naming the flag."""
        if not self.devices or not 1 <= min(self.devices) <= max(self.devices) <= MAX_DEVICES:
            raise UsageError(f"--devices: must lie between 1 and {MAX_DEVICES:,}, the smaller number first")
        if any(size is not None and size < 1 for size in self.microbatches):
            raise UsageError("--microbatches: must be 1 or more, such as 1,8,64")
        if self.price is not None and not (math.isfinite(self.price) and 0 < self.price <= MAX_PRICE):
            raise BadInput("--price", self.price, f"not above 0 and at most {MAX_PRICE:g}", "give a price such as 2.5")
        if not 1 <= self.max_context_parallel <= MAX_CONTEXT_PARALLEL:
            reason = f"not between 1 and {MAX_CONTEXT_PARALLEL:,}"
            raise BadInput("--max-context-parallel", self.max_context_parallel, reason, "give a smaller degree")
        check_seed(self.seed)
        open_workload(self.workload, seed=self.seed, rate_scale=self.rate_scale, requests=self.requests)


def search(
    models: str | Sequence[str],
    device_names: str | Sequence[str],
    *,
    devices: int | str | Iterable[int],
    workload: str | os.PathLike[str],
    slo: str | None = None,
    microbatches: int | str | Iterable[int] = (),
    max_context_parallel: int = 1,
    requests: int | None = 200,
    rate_scale: str | float | Fraction = 1,
    seed: int = 0,
    scheduling: Scheduling | None = None,
    price: float | None = None,
    jobs: int = 1,
    dask_scheduler: str | None = None,
    resume: str | os.PathLike[str] | None = None,
    catalog: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    **design: Unpack[DesignKeywords],
) -> SearchResult:
    """Try every way to divide devices among tensor, expert, context and pipeline ranks and replicas.

    `models` and `device_names` are one name or several, as `plan_model` takes them; `devices` how many in all, or
    several such numbers, or a text such as "4..16". Each division is planned with the keywords in `DesignKeywords` and
    run in this process, or in `jobs` processes (a script then needs `if __name__ == "__main__":`), or on the workers of
    a Dask scheduler. `resume` names a file that keeps finished trials, which a second search does not run again. With
    `price`, of one device for an hour, trials have a cost per million output tokens.

    This is `stageline search`. Raises DoesNotFit when no division fits, RunFailed when every run fails, and UsageError
    or BadInput for arguments that can't be used. Whether a trial meets `slo` is its `slo_met`.

    >>> import stageline
    >>> workload = "poisson:rate=4,input=256,output=16"
    >>> found = stageline.search("llama-3.1-8b", "h100-sxm", devices=2, workload=workload, requests=10)
    >>> sorted(trial.name for trial in found.trials)
    ['dp2', 'pp2', 'tp2']
    """
    given = cast(PlanKeywords, checked(search, design, DesignKeywords))
    if slo is not None:
        parse_slo(require("search: slo", slo, str, type(None)))
    question = Question(
        workload=str(require("search: workload", workload, str, os.PathLike)),
        devices=require_range("search: devices", devices, MAX_DEVICES),
        slo=slo,
        microbatches=require_counts("search: microbatches", microbatches, "1,8,64") or (None,),
        max_context_parallel=require("search: max_context_parallel", max_context_parallel, int),
        requests=require("search: requests", requests, int, type(None)),
        rate_scale=scale_text("search: rate_scale", rate_scale),
        seed=require("search: seed", seed, int),
        scheduling=require("search: scheduling", scheduling, Scheduling, type(None)),
        price=require("search: price", price, float, type(None)),
    )
    names = require_names("search: models", models), require_names("search: device_names", device_names)
    scheduler = require("search: dask_scheduler", dask_scheduler, str, type(None))
    runner = choose_runner(require("search: jobs", jobs, int), scheduler)
    kept = None if resume is None else require_path("search: resume", resume)
    return run_search(question, *names, given, require_paths("search: catalog", catalog), runner, kept)


def choose_runner(jobs: int, dask_scheduler: str | None) -> RunTrials:
    """What runs the trials: this process, several processes, or Dask workers. Raises UsageError."""
    if not 1 <= jobs <= MAX_JOBS:
        raise UsageError(f"--jobs {jobs}: must lie between 1 and {MAX_JOBS}")
    if dask_scheduler is not None:
        return lambda candidates: run_trials_on_dask(dask_scheduler, candidates)
    return lambda candidates: run_trials(candidates, jobs)


def run_search(
    question: Question,
    models: Sequence[str],
    device_names: Sequence[str],
    keywords: PlanKeywords,
    catalog_dirs: Sequence[Path],
    runner: RunTrials,
    resume: Path | None = None,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> SearchResult:
    """Run the search; `watch` is told how many trials are done, and of how many. Raises as `search` does."""
    question.check()
    candidates, skipped = _candidates(question, models, device_names, keywords, catalog_dirs)
    if not candidates:
        why = "; ".join(f"{x.name}: {x.reason}" for x in skipped[:3])
        count = f"none of the {len(skipped)} divisions of {_numbers(question.devices)} device(s)"
        raise DoesNotFit(f"{count} can serve this: {why}")
    trials = [with_cost(t, question.price) for t in finish_trials(candidates, resume, runner, watch)]
    if all(t.failure is not None for t in trials):
        raise RunFailed(f"all {len(trials)} divisions failed; the first: {trials[0].failure}")
    return SearchResult(tuple(trials), tuple(skipped))


def _numbers(devices: Sequence[int]) -> str:
    return str(devices[0]) if len(devices) == 1 else f"{min(devices)}..{max(devices)}"


def _candidates(
    question: Question,
    models: Sequence[str],
    device_names: Sequence[str],
    keywords: PlanKeywords,
    catalog_dirs: Sequence[Path],
) -> tuple[list[Candidate], list[Skipped]]:
    """What to run and what not, models and devices in the order given."""
    candidates: list[Candidate] = []
    skipped: list[Skipped] = []
    bound_ns = _bound_ns(question)
    for model in models:
        for device in device_names:
            inputs = find_inputs(model, device, keywords, catalog_dirs)
            for shape in _all_shapes(inputs.model, question):
                found = _plan_of(inputs, shape, bound_ns)
                if isinstance(found, Skipped):
                    skipped.append(found)
                else:
                    candidates.append(_candidate(found, shape, question))
    return candidates, skipped


def _all_shapes(spec: ModelSpec, question: Question) -> Iterator[Shape]:
    for count in question.devices:
        for shape in shapes(spec, count, question.max_context_parallel):
            for size in question.microbatches:
                yield msgspec.structs.replace(shape, microbatch=size)


def _candidate(plan: Plan, shape: Shape, q: Question) -> Candidate:
    return Candidate(
        model=plan.model, device=plan.device, name=shape.name, devices=shape.devices, plan=plan,
        workload=q.workload, seed=q.seed, rate_scale=q.rate_scale, requests=q.requests, slo=q.slo,
        scheduling=q.scheduling or settle(plan_scheduling(plan), q.given, plan),
    )  # fmt: skip


def _bound_ns(question: Question) -> int | None:
    """The longest decode step that the objective allows: with every draft right it yields 1 + K tokens."""
    objective = parse_slo(question.slo) if question.slo else None
    if objective is None or objective.tpot_ns is None:
        return None
    drafts = question.scheduling.speculate if question.scheduling else question.given.get("speculate", 0)
    return objective.tpot_ns * (1 + int(drafts))


def _plan_of(inputs: PlanInputs, shape: Shape, bound_ns: int | None) -> Plan | Skipped:
    """The plan of a shape; skipped where it does not fit or where a lower bound already misses the objective."""
    options = shape.options(inputs.options)
    try:
        plan = make_plan(inputs.model, inputs.device, options).plan
    except (DoesNotFit, BadInput) as error:  # too small, or not a division that this model allows
        return Skipped(shape.name, str(error))
    lone = pipeline_timing(len(plan.stages), plan.visits, plan.links, plan.costs, decode_totals(1, 1)).trip_ns
    if bound_ns is not None and lone > bound_ns:
        return Skipped(shape.name, f"a lone token's trip takes {lone:,} ns, more than the objective's TPOT allows")
    return with_provenance(plan, inputs.model, options, inputs.keywords)
