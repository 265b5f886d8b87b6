"""Tables, lines and charts of a search."""

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stageline.api.fleet_text import FLEET_FILE
from stageline.api.question import Question
from stageline.api.ranking import brief, token_rate
from stageline.api.robustness import Room
from stageline.api.searching import SearchResult
from stageline.api.trials import Trial
from stageline.cli import output
from stageline.cli.figure import saved_axes
from stageline.report.measure import FILLED
from stageline.report.palette import BUSY
from stageline.units import NS_PER_S, figure_text, format_duration

MAX_ADVICE_LINES = 8  # lines below a table; --json has all
MAX_REASONS = 6


def answer_document(found: SearchResult) -> dict[str, Any]:
    """What --json prints."""
    return {
        "best": found.best(),
        "runners_up": found.runners_up(),
        "robustness": found.robustness,
        "launch": found.launch,
        "alternative": found.alternative,
        "trials": found.trials,
        "combinations": found.combinations,
        "short_trials": found.short_trials,
        "left_out": [x._asdict() for x in found.skipped],
    }


def print_search(found: SearchResult, question: Question, *, best_of_each: bool, written: Path | None = None) -> None:
    """A table, the answer, what was left out, and lines to paste. `written`: the fleet file that has the answer."""
    trials = found.trials
    several = len({(t.model, t.device) for t in trials}) > 1
    best = found.best()
    if best_of_each:
        title, shown = "best at every number of devices", found.best_by_devices()
    elif question.slo is not None and best is not None:
        title, shown = f"best of every division on {best.devices} devices", [best, *found.runners_up()]
    else:
        title, shown = "Pareto front: goodput, TTFT, TPOT, devices", found.front()
    if best is not None and best not in shown:  # the answer is always a row, and binds speaks of it
        shown = [best, *shown]
    other = found.best_of_other_kind()
    if other is not None and other not in shown:
        shown = [*shown, other]
    output.print_table(title, *_table(shown, several))
    settings = [f"{_name(t, several)}: {t.settings}" for t in shown if t.settings]
    lines = settings + _counts(found, question) + _load(trials, question) + _room(found)
    if best is not None and best_of_each and found.runners_up():
        others = ", ".join(_verdict(t, several) for t in found.runners_up()[:4])
        lines.append(f"next best on {best.devices} devices: {others}")
    output.print_lines(lines + _left_out(found) + _advice([best, *shown] if best else shown, several))
    if best is not None:
        output.print_lines(["", f"answer: {_verdict(best, several)}, on {best.devices} x {best.device}"])
        _print_launch(found, written)


def _table(shown: Sequence[Trial], several: bool) -> tuple[list[tuple[str, bool]], list[list[str]]]:
    priced = any(t.cost_per_million_tokens is not None for t in shown)
    names = ["goodput req/s", "tokens/s", "TTFT p50", "p99", "TPOT p50", "p99", "served req/s"]
    columns = [("division", False), ("devices", True), *((name, True) for name in names), ("binds", False)]
    if priced:
        columns += [("per hour", True), ("$/M tokens", True)]
    return columns, [_cells(t, several, priced) for t in shown]


def _counts(found: SearchResult, question: Question) -> list[str]:
    trials, failed = found.trials, [t for t in found.trials if t.failure is not None]
    short = f", and {found.short_trials} trials on the beginning of the workload" if found.short_trials else ""
    lines = [f"{len(trials)} of {found.combinations:,} combinations run in full{short}"]
    lines += [f"{t.name} {t.settings} failed: {t.failure}" for t in failed[:3]]
    if any(t.slo_met is not None for t in trials):
        lines.append(f"{sum(bool(t.slo_met) for t in trials)} meet the objective")
    if question.disaggregate is not None and not any(t.disaggregated for t in trials):
        lines.append("no fleet of two pools was run in full: what was left out has the reasons")
    lost = sum(t.only_one_lost for t in trials)
    if lost:
        lines.append(f"{lost} miss it with one replica lost; their figures are of that run, the only one made of them")
    return lines


def _load(trials: Sequence[Trial], question: Question) -> list[str]:
    """What the trials were given, which a limit on requests may make another load than the whole workload."""
    offered = [t.offered_requests_per_s for t in trials if t.offered_requests_per_s is not None]
    rates = sorted({figure_text(least) for least in (min(offered), max(offered))}) if offered else []
    at_once = ", from users who wait for replies" if question.open().reactive else ", offered all at once"
    rate = f", offered at {' to '.join(rates)} requests/s" if rates else at_once
    limit = question.requests
    first = "all requests" if limit is None else f"at most the first {limit:,} requests (--requests)"
    window = f"rates: while requests arrive, but for {FILLED} median requests or longer"
    lines = [f"load: {first} of the workload{rate}; {window}"]
    return lines + brief_lines(trials)


def brief_lines(trials: Sequence[Trial]) -> list[str]:
    """Says so where requests arrive for too short a time to measure rates in it."""
    found = [t for t in trials if brief(t)]
    if not found:
        return []
    span = min(t.arrivals_s or 0.0 for t in found)
    return [
        f"short: requests arrive for {figure_text(span)} s, less than {FILLED} times what a median one takes, so that "
        f"rates (and costs) of {len(found)} of the {len(trials)} runs include time after the last arrival; give more "
        "--requests"
    ]


def _room(found: SearchResult) -> list[str]:
    """How much more load the answer takes, and with one replica lost."""
    if found.robustness is None:
        return []
    whole, lost = found.robustness.whole, found.robustness.one_lost
    lines = [f"headroom: the answer {_limit(whole)}"]
    if found.alternative is not None:
        trial = found.alternative.trial
        lines.append(f"headroom: {_kind(trial)}, {trial.name} {_limit(found.alternative.room)}")
    if lost is None:
        return [*lines, "one replica lost: there is no other"]
    kept = "" if lost.attainment is None else f"{lost.attainment:.2%} are good at this load; "
    return [*lines, f"one of {whole.replicas} replicas lost: {kept}it {_limit(lost)}"]


def _kind(t: Trial) -> str:
    return "the best with two pools" if t.disaggregated else "the best with one pool"


def _limit(room: Room) -> str:
    if room.kept is None:
        return "meets the objective at no load that was tried"
    edge = "no larger load was tried" if room.missed is None else f"misses it at {figure_text(room.missed)} x"
    odd = "" if room.monotone else "; not monotone: a larger load was seen to meet it again"
    return f"meets the objective up to {figure_text(room.kept)} x this load, and {edge}{odd}"


def _left_out(found: SearchResult) -> list[str]:
    """Reasons, the most frequent first, each with one of those that it is for."""
    example: dict[str, str] = {}
    for name, reason in found.skipped:
        example.setdefault(reason, name)
    counts = Counter(reason for _, reason in found.skipped)
    lines = []
    if found.short_trials:
        lines.append("left out: settings that did worse on the beginning of the workload (--exhaustive runs all)")
    for reason, count in counts.most_common(MAX_REASONS):
        more = f" and {count - 1} more" if count > 1 else ""
        lines.append(f"left out: {example[reason]}{more}: {reason}")
    more_reasons = len(counts) - MAX_REASONS
    return lines + ([f"left out for {more_reasons} other reasons: --json has all"] if more_reasons > 0 else [])


def _verdict(t: Trial, several: bool) -> str:
    """A trial in one phrase."""
    settings = f" {t.settings}" if t.settings else ""
    lost = "" if t.attainment_one_lost is None else f"{t.attainment_one_lost:.2%} with one replica lost"
    whole = "" if t.attainment is None else f"{t.attainment:.2%} good"
    good = f" ({whole} with one replica lost)" if t.only_one_lost else _bracketed(whole, lost)
    cost = "" if t.cost_per_hour is None else f", {t.cost_per_hour:,.2f} an hour"
    return f"{_name(t, several)}{settings}{good}{cost}"


def _bracketed(*parts: str) -> str:
    inside = ", ".join(part for part in parts if part)
    return f" ({inside})" if inside else ""


def _print_launch(found: SearchResult, written: Path | None) -> None:
    """Lines to paste, unwrapped."""
    launch = found.launch
    if launch is None:
        return
    fleet = "" if launch.plan or written else f"# {FLEET_FILE}\n{launch.fleet.rstrip()}\n"
    run = launch.run if launch.plan or not written else _run_of(launch.run, written)
    lines = [line for line in (fleet, launch.plan, run, launch.vllm, launch.sglang) if line]
    if launch.helm:
        lines.append(f"# values.yaml of vLLM's production stack:\n{launch.helm.rstrip()}")
    output.print_plain([*lines, *(f"# not said: {text}" for text in launch.not_said)])


def _run_of(line: str, file: Path) -> str:
    """The command with the file that was written."""
    return shlex.join(str(file) if word == FLEET_FILE else word for word in shlex.split(line))


def _advice(shown: Sequence[Trial], several: bool) -> list[str]:
    """What binds in the rows of the table: each line once, with the divisions that it is for."""
    names_by_line: dict[str, list[str]] = {}
    for t in shown:
        for line in t.binds:
            names = names_by_line.setdefault(line, [])
            names += [name for name in (_name(t, several),) if name not in names]
    return [f"binds ({', '.join(names)}): {line}" for line, names in names_by_line.items()][:MAX_ADVICE_LINES]


def _name(t: Trial, several: bool) -> str:
    return f"{t.model} on {t.device}: {t.name}" if several else t.name


def _cells(t: Trial, several: bool, priced: bool) -> list[str]:
    times = (t.ttft_p50_s, t.ttft_p99_s, t.tpot_p50_s, t.tpot_p99_s)
    mark = "" if t.slo_met is not False else " (one lost)" if t.only_one_lost else " (misses)"
    return [
        _name(t, several) + mark,
        str(t.devices),
        figure_text(t.goodput_requests_per_s),
        f"{token_rate(t):,.0f}",
        *(format_duration(s * NS_PER_S) for s in times),
        "" if t.served_requests_per_s is None else figure_text(t.served_requests_per_s),
        t.binding,
        *([_money(t.cost_per_hour), _money(t.cost_per_million_tokens)] if priced else []),
    ]


def _money(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"


def save_plot(found: SearchResult, path: Path, *, curve: bool) -> None:
    """Goodput against TPOT, the front marked; with `curve` goodput against devices. UsageError if it can't be saved."""
    with saved_axes(path) as axes:
        ran = [t for t in found.trials if t.failure is None]
        if curve:
            best = found.best_by_devices()
            axes.plot([t.devices for t in best], [t.goodput_requests_per_s for t in best], marker="o", color=BUSY)
            axes.set(xlabel="devices", ylabel="goodput (requests/s)")
        else:
            axes.scatter(
                [t.tpot_p99_s * 1e3 for t in ran], [t.goodput_requests_per_s for t in ran], color="#9E9E9E", s=12
            )
            for t in found.front():
                axes.scatter(t.tpot_p99_s * 1e3, t.goodput_requests_per_s, color=BUSY, s=24)
                axes.annotate(t.name, (t.tpot_p99_s * 1e3, t.goodput_requests_per_s), fontsize=7)
            axes.set(xlabel="p99 TPOT (ms)", ylabel="goodput (requests/s)")
