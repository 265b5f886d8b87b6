"""Sweeping: one plan and one workload, over values of one or two settings or of the load, or up to an objective."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Any, Unpack

import msgspec

from stageline.api.arguments import require, require_path, scale_text
from stageline.api.bisecting import Limit, largest_load
from stageline.api.keywords import SchedulingKeywords, checked
from stageline.api.planning import ModelPlan, as_plan
from stageline.api.question import DEFAULT_REQUESTS
from stageline.api.ranking import token_rate
from stageline.api.running import check_seed
from stageline.api.scheduling import base_scheduling, settle
from stageline.api.searching import trial_runner
from stageline.api.serving import engine_scheduling
from stageline.api.sweep_axes import (
    SweepAxis,
    Value,
    flag_name,
    load_name,
    load_of,
    sweep_axes,
    value_text,
    with_load,
)
from stageline.api.trials import Candidate, RunTrials, Trial
from stageline.engine.settings import Scheduling
from stageline.errors import RunFailed, UsageError
from stageline.plan.schema import Plan
from stageline.report.slo import Slo, parse_slo
from stageline.workload import open_workload

ENOUGH = 0.95  # of the most that any value reaches
BEND = 0.05  # of the curve's height: what lies less above the line between its ends is not called a knee
FLATTER = 0.5  # of its slope before the knee: what a curve may have behind it
SAME_LIMIT = {  # a limit of the replica and that of a data-parallel rank
    "max_num_seqs": ("max_running",), "max_running": ("max_num_seqs",),
    "max_num_batched_tokens": ("batched_tokens",), "batched_tokens": ("max_num_batched_tokens",),
}  # fmt: skip
Watch = Callable[[int, int], None]


class SweepPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a sweep, and the values that it had."""

    values: Mapping[str, Value]
    trial: Trial


class SweepCurve(msgspec.Struct, frozen=True, kw_only=True):
    """The runs that differ in the first axis only; `other` is the value of the second one, if there are two.

    The figure of a curve is output tokens per second of the measurement window; with an objective it is goodput.
    """

    other: Value | None
    points: tuple[SweepPoint, ...]
    best: Value | None  # the value with the greatest figure; of equal ones the first. None: no run keeps the objective
    enough: Value | None  # the first value that reaches 95 % of it
    knee: Value | None  # from which more gives less than half as much; None: the curve has no such point
    limit: Limit | None = None  # with `until`: the largest load under the objective


class SweepResult(msgspec.Struct, frozen=True, kw_only=True):
    """What `sweep` found."""

    axes: tuple[str, ...]
    objective: str | None
    curves: tuple[SweepCurve, ...]


class SweepBase(msgspec.Struct, frozen=True, kw_only=True):
    """What all runs of a sweep share."""

    plan: Plan
    workload: str
    seed: int
    rate_scale: str
    requests: int | None
    slo: str | None
    scheduling: Scheduling

    def candidate(self, values: Mapping[str, Value]) -> Candidate:
        """The run at these values. Raises UsageError or BadInput."""
        text, scale = self.workload, self.rate_scale
        given: dict[str, Any] = {}
        for name, value in values.items():
            if name in ("rate", "users", "rate_scale"):
                text, scale = with_load(text, scale, name, value)
            else:
                given[name] = value
        slo: Slo | None = parse_slo(self.slo) if self.slo else None
        return Candidate(
            model=self.plan.model, device=self.plan.device, plan=self.plan, workload=text, seed=self.seed,
            name=" ".join(f"{flag_name(n)}={value_text(n, v)}" for n, v in values.items()) or "as it is",
            devices=self.plan.replicas * sum(s.devices for s in self.plan.stages), rate_scale=scale,
            requests=self.requests, slo=self.slo, scheduling=settle(self.scheduling, given, self.plan, slo=slo),
        )  # fmt: skip


def sweep(
    plan: ModelPlan | Plan | str | os.PathLike[str],
    workload: str | os.PathLike[str],
    *,
    over: Mapping[str, str | Iterable[Value]] | None = None,
    until: str | None = None,
    slo: str | None = None,
    requests: int | None = DEFAULT_REQUESTS,
    rate_scale: str | float | Fraction = 1,
    seed: int = 0,
    serving_engine: str | None = None,
    jobs: int = 1,
    **scheduling: Unpack[SchedulingKeywords],
) -> SweepResult:
    """Run a plan at several loads or settings, and say where the curve bends: `stageline sweep`.

    `over` names one or two of "rate" or "users" (options of the workload's text), "rate_scale", and the keywords in
    `SchedulingKeywords`, each with values or a text such as "2..20" (8 values), "2..20:5" or "64,256". `until` is an
    objective: the load is then raised or lowered until it is just kept, for every value of `over`; loads in `over` are
    where that begins. Each `SweepResult.curves` has the runs, the value with the most, the first within 95 % of it, and
    the knee.

    Raises BadInput or UsageError for what can't be swept, and RunFailed when every run fails.

    >>> import stageline
    >>> plan = stageline.plan_model("llama-3.1-8b", "h100-sxm")
    >>> load = "poisson:rate=4,requests=40,input=512,output=16"
    >>> found = stageline.sweep(plan, load, over={"rate": [4, 400]}, slo="ttft=200ms")
    >>> [point.trial.slo_met for point in found.curves[0].points]
    [True, False]
    """
    given = checked(sweep, scheduling, SchedulingKeywords)
    loaded = as_plan(plan, "sweep")
    text = str(require_path("sweep: workload", workload)) if isinstance(workload, os.PathLike) else workload
    axes = sweep_axes(dict(over or {}))
    scale = scale_text("sweep: rate_scale", rate_scale)
    check_said_once(axes, {*given, *(["rate_scale"] if scale != "1" else [])})
    base = _base(
        loaded, require("sweep: workload", text, str), held(axes) | given, serving_engine, seed=seed, slo=until or slo,
        requests=require("sweep: requests", requests, int, type(None)),
        rate_scale=scale,
    )  # fmt: skip
    with trial_runner(require("sweep: jobs", jobs, int), None) as runner:
        return run_sweep(base, axes, runner, until=until is not None, width=jobs)


def check_said_once(axes: Sequence[SweepAxis], given: Collection[str]) -> None:
    """Raises UsageError for a setting that has a value besides those that it takes in turn."""
    for axis in axes:
        same = {axis.name, *SAME_LIMIT.get(axis.name, ())} & set(given)
        if same:
            flag = flag_name(min(same))
            raise UsageError(f"--{flag} is given, and --over {axis.flag} sets it, too: give one of them")


def held(axes: Sequence[SweepAxis]) -> dict[str, Any]:
    """Values of axes on which other settings rest: drafts, their acceptance and the prefix cache.

    Without them --acceptance or --snapshot-tokens would be refused as settings of nothing.
    """
    return {a.name: max(a.values) for a in axes if a.name in ("speculate", "acceptance_ppm", "prefix_cache")}


def _base(
    plan: Plan,
    workload: str,
    given: Mapping[str, Any],
    engine: str | None,
    *,
    seed: int,
    slo: str | None,
    requests: int | None,
    rate_scale: str,
) -> SweepBase:
    seed = check_seed(require("sweep: seed", seed, int))
    objective = None if slo is None else parse_slo(require("sweep: slo", slo, str))
    opened = open_workload(workload, seed=seed, rate_scale=rate_scale, requests=requests)
    settings = settle(base_scheduling(opened, seed, engine_scheduling(plan, engine)), given, plan, slo=objective)
    return sweep_base(plan, workload, settings, seed=seed, slo=slo, requests=requests, rate_scale=rate_scale)


def sweep_base(
    plan: Plan,
    workload: str,
    scheduling: Scheduling,
    *,
    seed: int,
    slo: str | None,
    requests: int | None,
    rate_scale: str,
) -> SweepBase:
    """What all runs of a sweep share, from what was checked."""
    return SweepBase(
        plan=plan, workload=workload, seed=seed, rate_scale=rate_scale, requests=requests, slo=slo,
        scheduling=scheduling,
    )  # fmt: skip


def run_sweep(
    base: SweepBase,
    axes: Sequence[SweepAxis],
    runner: RunTrials,
    *,
    until: bool = False,
    width: int = 1,
    watch: Watch = lambda done, total: None,
) -> SweepResult:
    """As `sweep`; `watch` is told how many runs are done, and of how many."""
    curves = _limits(base, axes, runner, width, watch) if until else _curves(base, axes, runner, watch)
    trials = [point.trial for curve in curves for point in curve.points]
    if all(t.failure is not None for t in trials):
        raise RunFailed(f"all {len(trials)} runs failed; the first: {trials[0].failure}")
    names = [load_name(base.workload)] if until and not any(a.load for a in axes) else []
    return SweepResult(axes=(*names, *(a.name for a in axes)), objective=base.slo, curves=tuple(curves))


def _curves(base: SweepBase, axes: Sequence[SweepAxis], runner: RunTrials, watch: Watch) -> list[SweepCurve]:
    points = [dict(zip((a.name for a in axes), values, strict=True)) for values in product(*(a.values for a in axes))]
    trials = _run(base, points, runner, watch)
    found = [SweepPoint(values=p, trial=t) for p, t in zip(points, trials, strict=True)]
    if not axes:
        return [SweepCurve(other=None, points=tuple(found), best=None, enough=None, knee=None)]
    first, rest = axes[0], axes[1:]
    curves = []
    for other in rest[0].values if rest else (None,):
        on = tuple(p for p in found if not rest or p.values[rest[0].name] == other)
        curves.append(_described(first, other, on))
    return curves


def _run(base: SweepBase, points: Sequence[Mapping[str, Value]], runner: RunTrials, watch: Watch) -> list[Trial]:
    candidates = [base.candidate(values) for values in points]
    found: dict[str, Trial] = {}
    for trial in runner(candidates):
        found[trial.key] = trial
        watch(len(found), len(candidates))
    return [found[c.key()] for c in candidates]


def figure(trial: Trial) -> float:
    """What a curve shows."""
    return trial.goodput_requests_per_s if trial.slo_met is not None else token_rate(trial)


def _described(axis: SweepAxis, other: Value | None, points: tuple[SweepPoint, ...]) -> SweepCurve:
    if not any(p.trial.slo_met is not False and p.trial.finished for p in points):
        return SweepCurve(other=other, points=points, best=None, enough=None, knee=None)
    ran = [(p.values[axis.name], figure(p.trial)) for p in points if p.trial.failure is None]
    most = max((y for _, y in ran), default=0.0)
    best = next((x for x, y in ran if y == most), None)
    enough = next((x for x, y in ran if y >= ENOUGH * most), None) if axis.numeric else None
    return SweepCurve(other=other, points=points, best=best, enough=enough, knee=knee(ran) if axis.numeric else None)


def knee(curve: Sequence[tuple[Any, float]]) -> Any | None:
    """The x furthest above the straight line between the ends of a curve, both axes scaled to 0..1.

    None: it lies less than BEND above that line, so that the curve is as good as straight, or the curve rises behind
    it by more than FLATTER of its slope before it.
    """
    if len(curve) < 3:
        return None
    (x0, y0), (x1, y1) = curve[0], curve[-1]
    high = max(y for _, y in curve)
    if x1 == x0 or high <= y0:
        return None
    above = [((y - y0) / (high - y0) - (x - x0) / (x1 - x0) * (y1 - y0) / (high - y0), x) for x, y in curve]
    height, at = max(above, key=lambda pair: pair[0])
    y = dict(curve)[at]
    if height < BEND or at in (x0, x1):
        return None
    return at if (y1 - y) / (x1 - at) < FLATTER * (y - y0) / (at - x0) else None


def _limits(
    base: SweepBase, axes: Sequence[SweepAxis], runner: RunTrials, width: int, watch: Watch
) -> list[SweepCurve]:
    """For every value of what is no load: the largest load under the objective."""
    others = [a for a in axes if not a.load]
    if len(others) > 1:
        raise UsageError(f"--until: {' and '.join(a.flag for a in others)} vary besides the load; give one of them")
    load = next((a for a in axes if a.load), None)
    name = load.name if load is not None else load_name(base.workload)
    own = load_of(base.workload, base.rate_scale, name) if load is None else 0.0
    starts = [own] if load is None else [float(value) for value in load.values]
    curves = []
    for other in others[0].values if others else (None,):
        fixed: dict[str, Value] = {} if other is None else {others[0].name: other}
        points: list[SweepPoint] = []

        def probe(
            loads: Sequence[float], fixed: dict[str, Value] = fixed, points: list[SweepPoint] = points
        ) -> list[bool]:
            asked = [{name: _load(name, x), **fixed} for x in loads]
            trials = _run(base, asked, runner, watch)
            points += [SweepPoint(values=p, trial=t) for p, t in zip(asked, trials, strict=True)]
            return [bool(t.slo_met) for t in trials]

        limit = largest_load(probe, *starts, width=width, whole=name == "users")
        points.sort(key=lambda p: float(p.values[name]))
        curves.append(
            SweepCurve(other=other, points=tuple(points), best=None, enough=None, knee=None, limit=limit)
        )  # fmt: skip
    return curves


def _load(name: str, load: float) -> Value:
    """A load as the text of a workload takes it."""
    return int(load) if name == "users" else round(load, 3)
