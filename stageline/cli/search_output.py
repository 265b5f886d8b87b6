"""Tables and charts of a search."""

from collections.abc import Sequence
from pathlib import Path

from stageline.api.searching import SearchResult
from stageline.api.trials import Trial
from stageline.cli import output
from stageline.errors import UsageError
from stageline.report.palette import BUSY
from stageline.units import figure_text

MAX_ADVICE_LINES = 8  # lines below a table; --json has all


def print_trials(found: SearchResult, *, best_of_each: bool, requests: int | None) -> None:
    """The Pareto front, or the curve over numbers of devices; `requests` is the limit of the workload."""
    trials, shown = found.trials, found.best_by_devices() if best_of_each else found.front()
    several = len({(t.model, t.device) for t in trials}) > 1
    priced = any(t.cost_per_million_tokens is not None for t in trials)
    names = ["goodput req/s", "tokens/s", "TTFT p50", "p99", "TPOT p50", "p99", "served req/s"]
    columns = [("division", False), ("devices", True), *((name, True) for name in names), ("binds", False)]
    if priced:
        columns.append(("$/M tokens", True))
    title = "best at every number of devices" if best_of_each else "Pareto front: goodput, TTFT, TPOT, devices"
    output.print_table(title, columns, [_cells(t, several, priced) for t in shown])
    failed = [t for t in trials if t.failure is not None]
    skipped = len(found.skipped)
    lines = [f"{len(trials)} divisions run, {skipped} skipped (they do not fit, or a bound misses the objective)"]
    lines += _load(trials, requests)
    lines += [f"{t.name} failed: {t.failure}" for t in failed[:3]]
    if any(t.slo_met is not None for t in trials):
        lines.append(f"{sum(bool(t.slo_met) for t in trials)} meet the objective")
    output.print_lines(lines + _advice(shown, several))


def _load(trials: Sequence[Trial], requests: int | None) -> list[str]:
    """What the trials were given, which a limit on requests may make another load than the whole workload."""
    offered = [t.offered_requests_per_s for t in trials if t.offered_requests_per_s is not None]
    rates = sorted({figure_text(least) for least in (min(offered), max(offered))}) if offered else []
    rate = f", offered at {' to '.join(rates)} requests/s" if rates else ", offered all at once"
    first = "all requests" if requests is None else f"at most the first {requests:,} requests (--requests)"
    return [f"load: {first} of the workload{rate}; served: completions while requests arrived, without the drain"]


def _advice(shown: Sequence[Trial], several: bool) -> list[str]:
    """What binds in the rows of the table: each line once, with the divisions that it is for."""
    names_by_line: dict[str, list[str]] = {}
    for t in shown:
        for line in t.binds:
            names_by_line.setdefault(line, []).append(_name(t, several))
    return [f"binds ({', '.join(names)}): {line}" for line, names in names_by_line.items()][:MAX_ADVICE_LINES]


def _name(t: Trial, several: bool) -> str:
    return f"{t.model} on {t.device}: {t.name}" if several else t.name


def _cells(t: Trial, several: bool, priced: bool) -> list[str]:
    times = (t.ttft_p50_s, t.ttft_p99_s, t.tpot_p50_s, t.tpot_p99_s)
    mark = "" if t.slo_met is not False else " (misses)"
    return [
        _name(t, several) + mark,
        str(t.devices),
        figure_text(t.goodput_requests_per_s),
        f"{t.output_tokens_per_s:,.0f}",
        *(f"{s * 1e3:,.1f} ms" for s in times),
        "" if t.served_requests_per_s is None else figure_text(t.served_requests_per_s),
        t.binding,
        *([f"{t.cost_per_million_tokens:.2f}" if t.cost_per_million_tokens is not None else ""] if priced else []),
    ]


def save_plot(found: SearchResult, path: Path, *, curve: bool) -> None:
    """Goodput against TPOT, the front marked; with `curve` goodput against devices. UsageError if it can't be saved."""
    import matplotlib as mpl  # noqa: PLC0415  (loaded only when a chart is drawn)

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    ran = [t for t in found.trials if t.failure is None]
    if curve:
        best = found.best_by_devices()
        axes.plot([t.devices for t in best], [t.goodput_requests_per_s for t in best], marker="o", color=BUSY)
        axes.set(xlabel="devices", ylabel="goodput (requests/s)")
    else:
        axes.scatter([t.tpot_p99_s * 1e3 for t in ran], [t.goodput_requests_per_s for t in ran], color="#9E9E9E", s=12)
        for t in found.front():
            axes.scatter(t.tpot_p99_s * 1e3, t.goodput_requests_per_s, color=BUSY, s=24)
            axes.annotate(t.name, (t.tpot_p99_s * 1e3, t.goodput_requests_per_s), fontsize=7)
        axes.set(xlabel="p99 TPOT (ms)", ylabel="goodput (requests/s)")
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"--plot {path}: can't be written: {error}; give a .svg or .png file") from None
    finally:
        plt.close(figure)
