"""Searching: every way to divide some devices, and every setting that is varied, each run on a workload."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, Unpack, cast

import msgspec

from stageline.api.arguments import (
    require,
    require_counts,
    require_flags,
    require_names,
    require_path,
    require_paths,
    require_range,
    scale_text,
)
from stageline.api.dask_trials import run_trials_on_dask
from stageline.api.exploring import explore
from stageline.api.fleet_file import parse_transfer
from stageline.api.keywords import DesignKeywords, PlanKeywords, checked
from stageline.api.launch_text import LaunchTexts
from stageline.api.placement_limits import PlacementLimits
from stageline.api.question import DEFAULT_REQUESTS, DISAGGREGATE, MAX_DEVICES, Question
from stageline.api.ranking import best_by_devices, cheapest, on_front, other_kind, runners_up
from stageline.api.resuming import Runs
from stageline.api.robustness import Alternative, Robustness
from stageline.api.search_space import Skipped
from stageline.api.trials import RunTrials, Trial, run_trials, run_trials_in
from stageline.api.worker_pool import worker_pool
from stageline.catalog.loader import Catalog
from stageline.engine.settings import Scheduling
from stageline.errors import DoesNotFit, RunFailed, UsageError
from stageline.report.measure import parse_measure
from stageline.report.slo import parse_slo

MAX_JOBS = 256


class SearchResult(msgspec.Struct, frozen=True):
    """What was run on the whole workload, in a fixed order, and what was left out of the `combinations`."""

    trials: tuple[Trial, ...]
    skipped: tuple[Skipped, ...]
    combinations: int = 0  # of divisions that the limits allow, and settings
    short_trials: int = 0  # on the beginning of the workload; none of them is among `trials`
    robustness: Robustness | None = None  # of the best, if it meets an objective at a rate of arrivals
    launch: LaunchTexts | None = None  # of the best
    alternative: Alternative | None = None  # the best with two pools where `best` has one, or the other way round

    def best(self) -> Trial | None:
        """The answer: the cheapest that meets the objective, else what comes nearest; without one, the most tokens/s
        per device or money. None: nothing finished a request.
        """
        return cheapest(self.trials)

    def runners_up(self) -> list[Trial]:
        """The best trial of every other division on as many devices as the best."""
        best = self.best()
        return [] if best is None else runners_up(self.trials, best)

    def best_of_other_kind(self) -> Trial | None:
        """On as many devices as the best, the best trial with two pools where it has one, or the other way round."""
        best = self.best()
        return None if best is None else other_kind(self.trials, best)

    def front(self) -> list[Trial]:
        """Trials that no other beats in goodput, TTFT, TPOT (p99) and devices at once; most goodput first."""
        return on_front(self.trials)

    def best_by_devices(self) -> list[Trial]:
        """For every number of devices the trial that would be the answer with these alone."""
        return best_by_devices(self.trials)


def search(
    models: str | Sequence[str],
    device_names: str | Sequence[str],
    *,
    devices: int | str | Iterable[int],
    workload: str | os.PathLike[str],
    slo: str | None = None,
    microbatches: int | str | Iterable[int] = (),
    vary: Mapping[str, Iterable[Any]] | None = None,
    max_context_parallel: int = 1,
    requests: int | None = DEFAULT_REQUESTS,
    rate_scale: str | float | Fraction = 1,
    seed: int = 0,
    scheduling: Scheduling | None = None,
    warmup: str | None = None,
    measure_window: str | None = None,
    price: float | None = None,
    limits: PlacementLimits | None = None,
    every_count: bool = False,
    exhaustive: bool = False,
    headroom: bool = True,
    survive_loss: bool = False,
    disaggregate: str | None = None,
    jobs: int = 1,
    dask_scheduler: str | None = None,
    resume: str | os.PathLike[str] | None = None,
    catalog: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    **design: Unpack[DesignKeywords],
) -> SearchResult:
    """Find the cheapest division of devices, and the settings, that serve a workload: `stageline search`.

    `models` and `device_names` are one name or several, as `plan_model` takes them; `devices` how many in all, several
    such numbers, or a text such as "4..16". `vary` has lists of values for keywords of `DesignKeywords` or fields of
    `Scheduling`; `microbatches` is an older name of its "microbatch". `price` of one device for an hour gives costs;
    `limits` say more of prices, stock and nodes; `warmup` and `measure_window` are those of `run`. `disaggregate` also
    tries prefill and decode in two pools, and says how KV moves: "network=ndr-infiniband" or other keys of
    [kv-transfer] (docs/fleets.md). docs/planning.md says which combinations are run in full, what `every_count`,
    `exhaustive`, `headroom` and `survive_loss` change, and which trial is `best()`. `jobs` processes (a script then
    needs `if __name__ == "__main__":`) or the workers of a Dask scheduler run trials; `resume` names a file that keeps
    them. Raises DoesNotFit when no division fits, RunFailed when every run fails, UsageError or BadInput.

    >>> import stageline
    >>> workload = "poisson:rate=4,input=256,output=16"
    >>> found = stageline.search("llama-3.1-8b", "h100-sxm", devices=2, workload=workload, requests=10)
    >>> sorted(trial.name for trial in found.trials)
    ['dp2', 'pp2', 'tp2']
    """
    question = _question(
        models=models, device_names=device_names, keywords=checked(search, design, DesignKeywords), catalog=catalog,
        slo=slo, workload=workload, devices=devices, microbatches=microbatches, vary=vary, requests=requests, seed=seed,
        max_context_parallel=max_context_parallel, rate_scale=rate_scale, scheduling=scheduling, warmup=warmup,
        measure_window=measure_window, price=price, limits=limits, disaggregate=disaggregate,
        flags={
            "every_count": every_count, "exhaustive": exhaustive, "headroom": headroom, "survive_loss": survive_loss,
        },
    )  # fmt: skip
    scheduler = require("search: dask_scheduler", dask_scheduler, str, type(None))
    kept = None if resume is None else require_path("search: resume", resume)
    with trial_runner(require("search: jobs", jobs, int), scheduler) as runner:
        return run_search(question, Runs(runner, jobs, kept))


def _question(*, price: object, limits: object, flags: Mapping[str, bool], **asked: Any) -> Question:
    """The arguments of `search`, each checked. Raises UsageError."""
    require_flags("search", flags)
    slo = require("search: slo", asked["slo"], str, type(None))
    if slo is not None:
        parse_slo(slo)
    sizes = require_counts("search: microbatches", asked["microbatches"], "1,8,64")
    vary: dict[str, Any] = dict(require("search: vary", asked["vary"], Mapping, type(None)) or {})
    vary |= {"microbatch": sizes} if sizes else {}
    return Question(
        models=tuple(require_names("search: models", asked["models"])),
        device_names=tuple(require_names("search: device_names", asked["device_names"])),
        keywords=cast(PlanKeywords, asked["keywords"]),
        catalog_dirs=tuple(require_paths("search: catalog", asked["catalog"])),
        workload=str(require("search: workload", asked["workload"], str, os.PathLike)),
        devices=require_range("search: devices", asked["devices"], MAX_DEVICES),
        slo=slo,
        vary=vary,
        max_context_parallel=require("search: max_context_parallel", asked["max_context_parallel"], int),
        requests=require("search: requests", asked["requests"], int, type(None)),
        rate_scale=scale_text("search: rate_scale", asked["rate_scale"]),
        seed=require("search: seed", asked["seed"], int),
        scheduling=require("search: scheduling", asked["scheduling"], Scheduling, type(None)),
        window=parse_measure(
            require("search: warmup", asked["warmup"], str, type(None)),
            require("search: measure_window", asked["measure_window"], str, type(None)),
        ),
        disaggregate=None
        if (apart := require("search: disaggregate", asked["disaggregate"], str, type(None))) is None
        else parse_transfer(apart, DISAGGREGATE),
        limits=_limits(require("search: limits", limits, PlacementLimits, type(None)), price),
        every_count=flags["every_count"],
        exhaustive=flags["exhaustive"],
        headroom=flags["headroom"],
        survive_loss=flags["survive_loss"],
    )


def _limits(limits: PlacementLimits | None, price: object) -> PlacementLimits:
    """The limits, with the price of all devices that they give none."""
    found = limits or PlacementLimits()
    number = require("search: price", price, float, type(None))
    return found if number is None else msgspec.structs.replace(found, prices={"": float(number), **found.prices})


@contextmanager
def trial_runner(jobs: int, dask_scheduler: str | None) -> Iterator[RunTrials]:
    """What runs the trials: this process, several processes, or Dask workers. Raises UsageError."""
    if not 1 <= jobs <= MAX_JOBS:
        raise UsageError(f"--jobs {jobs}: must lie between 1 and {MAX_JOBS}")
    if dask_scheduler is not None:
        yield lambda candidates: run_trials_on_dask(dask_scheduler, candidates)
    elif jobs == 1:
        yield run_trials
    else:
        with worker_pool(jobs) as pool:
            yield lambda candidates: run_trials_in(pool, candidates)


def run_search(question: Question, runs: Runs) -> SearchResult:
    """Run the search. Raises as `search` does."""
    question.check()
    shelf = Catalog(question.catalog_dirs)
    question.limits.check_devices([shelf.device(name).device.name for name in question.device_names])
    found = explore(question, runs)
    if not found.trials:
        why = "; ".join(f"{x.name}: {x.reason}" for x in found.skipped[:3])
        count = f"none of the {len(found.skipped)} divisions of {_numbers(question.devices)} device(s)"
        raise DoesNotFit(f"{count} can serve this: {why}")
    if all(t.failure is not None for t in found.trials):
        raise RunFailed(f"all {len(found.trials)} divisions failed; the first: {found.trials[0].failure}")
    return SearchResult(**found._asdict())


def _numbers(devices: Sequence[int]) -> str:
    return str(devices[0]) if len(devices) == 1 else f"{min(devices)}..{max(devices)}"
