"""Tables and charts of a search."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from stageline.cli import output
from stageline.cli.candidates import Trial
from stageline.errors import UsageError
from stageline.report.palette import BUSY
from stageline.report.pareto import front

SECONDS_PER_HOUR = 3600
MAX_ADVICE_LINES = 8  # lines below a table; --json has all


def with_cost(trial: Trial, price: float | None) -> Trial:
    """$/M output tokens = devices x price / 3600 / (tokens/s) x 1e6."""
    if price is None or not trial.output_tokens_per_s:
        return trial
    cost = trial.devices * price / SECONDS_PER_HOUR / trial.output_tokens_per_s * 1e6
    return msgspec.structs.replace(trial, cost_per_million_tokens=cost)


def _goods(trial: Trial) -> tuple[float, ...]:
    """What counts: goodput, quick first tokens, quick tokens, few devices."""
    return (trial.goodput_requests_per_s, -trial.ttft_p99_s, -trial.tpot_p99_s, -float(trial.devices))


def on_front(trials: Sequence[Trial]) -> list[Trial]:
    """Trials that no other beats in goodput, TTFT, TPOT and number of devices at once; most goodput first."""
    ran = [t for t in trials if t.failure is None and t.finished]
    kept = [t for t, good in zip(ran, front(ran, _goods), strict=True) if good]
    return sorted(kept, key=lambda t: (-t.goodput_requests_per_s, t.devices, t.tpot_p99_s, t.name))


def best_by_count(trials: Sequence[Trial]) -> list[Trial]:
    """For every number of devices the trial with the most goodput, then the least TPOT."""
    best: dict[int, Trial] = {}
    for t in sorted(trials, key=lambda t: (-t.goodput_requests_per_s, t.tpot_p99_s, t.name)):
        if t.failure is None:
            best.setdefault(t.devices, t)
    return [best[n] for n in sorted(best)]


def print_trials(trials: Sequence[Trial], left: int, *, best_of_each: bool) -> None:
    """The Pareto front, or the curve over numbers of devices."""
    shown = best_by_count(trials) if best_of_each else on_front(trials)
    several = len({(t.model, t.device) for t in trials}) > 1
    priced = any(t.cost_per_million_tokens is not None for t in trials)
    names = ["goodput req/s", "tokens/s", "TTFT p50", "p99", "TPOT p50", "p99", "bubble"]
    columns = [("division", False), ("devices", True), *((name, True) for name in names), ("binds", False)]
    if priced:
        columns.append(("$/M tokens", True))
    title = "best at every number of devices" if best_of_each else "Pareto front: goodput, TTFT, TPOT, devices"
    output.print_table(title, columns, [_cells(t, several, priced) for t in shown])
    failed = [t for t in trials if t.failure is not None]
    lines = [f"{len(trials)} divisions run, {left} left out before (they do not fit, or a bound misses the objective)"]
    lines += [f"{t.name} failed: {t.failure}" for t in failed[:3]]
    if any(t.slo_met is not None for t in trials):
        lines.append(f"{sum(bool(t.slo_met) for t in trials)} meet the objective")
    output.print_lines(lines + _advice(shown, several))


def _advice(shown: Sequence[Trial], several: bool) -> list[str]:
    """What stands out in the rows of the table: each piece once, with the divisions that it is for."""
    found: dict[str, list[str]] = {}
    for t in shown:
        for line in t.advice:
            found.setdefault(line, []).append(_name(t, several))
    return [f"advice ({', '.join(names)}): {line}" for line, names in found.items()][:MAX_ADVICE_LINES]


def _name(t: Trial, several: bool) -> str:
    return f"{t.model} on {t.device}: {t.name}" if several else t.name


def _cells(t: Trial, several: bool, priced: bool) -> list[str]:
    times = (t.ttft_p50_s, t.ttft_p99_s, t.tpot_p50_s, t.tpot_p99_s)
    mark = "" if t.slo_met is not False else " (misses)"
    return [
        _name(t, several) + mark,
        str(t.devices),
        f"{t.goodput_requests_per_s:.3g}",
        f"{t.output_tokens_per_s:,.0f}",
        *(f"{s * 1e3:,.1f} ms" for s in times),
        f"{t.bubble_ratio:.0%}",
        t.binding,
        *([f"{t.cost_per_million_tokens:.2f}" if t.cost_per_million_tokens is not None else ""] if priced else []),
    ]


def save_plot(trials: Sequence[Trial], path: Path, *, curve: bool) -> None:
    """Goodput against TPOT, the front marked; with `curve` goodput against devices. UsageError if it can't be saved."""
    import matplotlib as mpl  # noqa: PLC0415  (loaded only when a chart is drawn)

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    ran = [t for t in trials if t.failure is None]
    if curve:
        best = best_by_count(ran)
        axes.plot([t.devices for t in best], [t.goodput_requests_per_s for t in best], marker="o", color=BUSY)
        axes.set(xlabel="devices", ylabel="goodput (requests/s)")
    else:
        axes.scatter([t.tpot_p99_s * 1e3 for t in ran], [t.goodput_requests_per_s for t in ran], color="#9E9E9E", s=12)
        for t in on_front(ran):
            axes.scatter(t.tpot_p99_s * 1e3, t.goodput_requests_per_s, color=BUSY, s=24)
            axes.annotate(t.name, (t.tpot_p99_s * 1e3, t.goodput_requests_per_s), fontsize=7)
        axes.set(xlabel="p99 TPOT (ms)", ylabel="goodput (requests/s)")
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"--plot {path}: can't be written: {error}; give a .svg or .png file") from None
    finally:
        plt.close(figure)
