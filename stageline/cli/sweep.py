"""`stageline sweep`: one plan over values of settings or of the load, or up to an objective."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from stageline.api.bisecting import Limit
from stageline.api.question import DEFAULT_REQUESTS
from stageline.api.ranking import token_rate
from stageline.api.scheduling import base_scheduling, settle
from stageline.api.searching import trial_runner
from stageline.api.sweep_axes import Value, flag_name, sweep_axes, value_text
from stageline.api.sweeping import (
    SweepCurve,
    SweepPoint,
    SweepResult,
    check_said_once,
    figure,
    held,
    run_sweep,
    sweep_base,
)
from stageline.cli import output
from stageline.cli.figure import saved_axes
from stageline.cli.flags import SchedulingFlags, WorkloadFlags
from stageline.cli.groups import OUTPUT, QUESTION, TRIALS
from stageline.cli.numbers import WHOLE
from stageline.cli.progress import counting_bar
from stageline.cli.search_output import brief_lines
from stageline.errors import BadInput, RunFailed, SloMissed, UsageError
from stageline.report.palette import BUSY
from stageline.report.refusals import refused_text
from stageline.report.slo import parse_slo
from stageline.runtime.plans import read_plan_file
from stageline.units import NS_PER_S, figure_text, format_duration


def sweep_command(
    plan: Annotated[Path, Parameter(help="Plan file, made by stageline plan -o.")],
    workload: WorkloadFlags,
    scheduling: SchedulingFlags = SchedulingFlags(),  # noqa: B008  (frozen)
    *,
    over: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            group=QUESTION,
            help="What varies, and its values: rate=2..20, users=1,8,64, rate-scale=0.5..2:4 (4 values), or a flag of "
            "the run like batched-tokens=256,1024 or prefix-cache=on,off; once or twice. With --until, loads say where "
            "to begin.",
        ),
    ] = (),
    until: Annotated[
        str | None,
        Parameter(group=QUESTION, help="Find the largest load under this objective, like ttft=1s,tpot=50ms."),
    ] = None,
    slo: Annotated[
        str | None, Parameter(group=QUESTION, help="Objective; the curve is then goodput, not tokens/s.")
    ] = None,
    jobs: Annotated[
        int | None, WHOLE, Parameter(group=TRIALS, help="Processes that run trials; default: one per core.")
    ] = None,
    plot: Annotated[Path | None, Parameter(group=OUTPUT, help="Write a chart here (.svg or .png).")] = None,
    json: Annotated[bool, Parameter(negative="", group=OUTPUT, help="Print JSON instead of tables.")] = False,
) -> None:
    """Run a plan over values of the load or of settings: the curve, its knee, and the largest load under an SLO."""
    if until is not None and slo is not None:
        raise UsageError("--until is an objective, too: give one of --slo and --until")
    if until is None and not over:
        raise UsageError("nothing varies: give --over rate=2..20, or --until ttft=1s,tpot=50ms")
    if workload.skip_bad_rows or workload.sort:
        raise UsageError("--skip-bad-rows and --sort are not for a sweep: mend the trace first")
    found = _found(plan, workload, scheduling, _over(over), until or slo, jobs, until=until is not None)
    if plot is not None:
        save_curves(found, plot)
    if json:
        output.print_json(found)
    else:
        _print(found)
    if not any(point.trial.finished for curve in found.curves for point in curve.points):
        raise RunFailed(f"no request finished at any point: {refused_text()}")
    if until is not None and all(c.limit is None or c.limit.kept is None for c in found.curves):
        raise SloMissed("no load that was tried keeps the objective")


def _found(
    plan: Path,
    workload: WorkloadFlags,
    scheduling: SchedulingFlags,
    over: dict[str, str],
    objective: str | None,
    jobs: int | None,
    *,
    until: bool,
) -> SweepResult:
    loaded = read_plan_file(plan)
    slo = None if objective is None else parse_slo(objective, "--until" if until else "--slo")
    axes, given = sweep_axes(over), scheduling.given()
    check_said_once(axes, {*given, *(["rate_scale"] if workload.rate_scale != "1" else [])})
    engine = base_scheduling(workload.open(), workload.seed, scheduling.base(loaded))
    settings = settle(engine, held(axes) | given, loaded, slo=slo)
    base = sweep_base(
        loaded, workload.workload, settings, seed=workload.seed, slo=objective, rate_scale=workload.rate_scale,
        requests=workload.requests or DEFAULT_REQUESTS,
    )  # fmt: skip
    width = os.cpu_count() or 1 if jobs is None else jobs
    with counting_bar("runs") as watch, trial_runner(width, None) as runner:
        return run_sweep(base, axes, runner, until=until, width=width, watch=watch)


def _over(texts: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().lstrip("-").replace("-", "_")
        if not equals or not values.strip():
            raise BadInput("--over", text, "not a name with values", "write it like rate=2..20")
        if name in found:
            raise BadInput("--over", text, "given twice", "give all its values at once")
        found[name] = values
    return found


def _print(found: SweepResult) -> None:
    met = found.objective is not None
    points = [point for curve in found.curves for point in curve.points]
    offered = any(p.trial.offered_requests_per_s is not None for p in points)
    columns = [flag_name(n) for n in found.axes] + ["offered req/s"] * offered
    columns += ["served req/s", "tokens/s", "TTFT p50", "p99", "TPOT p50", "p99"]
    columns += ["goodput req/s", "good"] if met else []
    output.print_table("sweep", [(name, True) for name in columns], [_cells(found, p, offered=offered) for p in points])
    lines = [line for curve in found.curves for line in _curve_lines(found, curve)]
    output.print_lines(lines + brief_lines([point.trial for point in points]) + _idle_users(points))


def _idle_users(points: Sequence[SweepPoint]) -> list[str]:
    """Says so where there are fewer requests than users: more users are then no more load."""
    found = [p for p in points if p.trial.failure is None and int(p.values.get("users", 0)) > p.trial.requests]
    if not found:
        return []
    least, requests = min(int(p.values["users"]) for p in found), found[0].trial.requests
    return [f"few requests: of {least:,} users or more only {requests:,} send one; give more --requests"]


def _cells(found: SweepResult, point: SweepPoint, *, offered: bool) -> list[str]:
    t = point.trial
    cells = [value_text(name, point.values[name]) for name in found.axes]
    if t.failure is not None:
        return [*cells, t.failure]
    rates = ([t.offered_requests_per_s] if offered else []) + [t.served_requests_per_s]
    cells += ["" if rate is None else figure_text(rate) for rate in rates]
    cells.append(figure_text(token_rate(t)))
    cells += [format_duration(s * NS_PER_S) for s in (t.ttft_p50_s, t.ttft_p99_s, t.tpot_p50_s, t.tpot_p99_s)]
    if t.attainment is not None:
        cells += [figure_text(t.goodput_requests_per_s), f"{t.attainment:.1%}" + ("" if t.slo_met else " (misses)")]
    return cells


def _curve_lines(found: SweepResult, curve: SweepCurve) -> Iterator[str]:
    axis, name = found.axes[0], flag_name(found.axes[0])
    of = "" if curve.other is None else f"{flag_name(found.axes[1])}={value_text(found.axes[1], curve.other)}: "
    if curve.limit is not None:
        yield of + _limit_text(name, curve.limit)
        return
    what = "goodput" if found.objective is not None else "tokens/s"
    if curve.best is None and any(p.trial.finished for p in curve.points):
        yield f"{of}no {name} that was tried keeps the objective"
    if curve.best is not None:
        most = max(figure(p.trial) for p in curve.points if p.trial.failure is None)
        yield f"{of}most {what}: {name}={value_text(axis, curve.best)} ({figure_text(most)})"
    if curve.enough is not None and len(curve.points) > 1:
        yield f"{of}95 % of it: from {name}={value_text(axis, curve.enough)}"
    if curve.knee is not None:
        yield f"{of}knee: {name}={value_text(axis, curve.knee)}; more of it gives less than half as much {what}"


def _limit_text(name: str, limit: Limit) -> str:
    if limit.kept is None:
        least = figure_text(min(load for load, _ in limit.tried))
        return f"no {name} that was tried keeps the objective, down to {least}"
    edge = "the largest tried" if limit.missed is None else f"{figure_text(limit.missed)} misses it"
    order = "every larger one misses it" if limit.monotone else "not monotone: a larger one that was tried keeps it"
    tried = f"of the {len(limit.tried)} tried, {order}"
    return f"largest {name} under the objective: {figure_text(limit.kept)} ({edge}; {tried})"


def save_curves(found: SweepResult, path: Path) -> None:
    """The figure over the first axis, a line for every value of the second. Raises UsageError if it can't be saved."""
    with saved_axes(path) as axes:
        name = found.axes[0]
        for number, curve in enumerate(found.curves):
            ran = [p for p in curve.points if p.trial.failure is None]
            xs = [_place(name, p.values[name]) for p in ran]
            colour = BUSY if number == 0 else f"C{number}"
            axes.plot(xs, [figure(p.trial) for p in ran], marker="o", color=colour, label=_label(found, curve))
            marked = curve.limit.kept if curve.limit is not None else curve.knee
            if isinstance(marked, (int, float)):
                axes.axvline(marked, color=colour, linestyle=":", linewidth=1)
        if len(found.curves) > 1:
            axes.legend()
        what = "goodput (requests/s)" if found.objective is not None else "output tokens/s"
        axes.set(xlabel=flag_name(name), ylabel=what)
        axes.set_ylim(bottom=0)


def _place(name: str, value: Value) -> float | str:
    """Where a value stands on the axis: words, and on and off, side by side."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else value_text(name, value)


def _label(found: SweepResult, curve: SweepCurve) -> str:
    return "" if curve.other is None else f"{flag_name(found.axes[1])} {value_text(found.axes[1], curve.other)}"
