"""Runs side by side: what changed in the command, and what that did."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from stageline.engine.causes import BUBBLES, SHOWN
from stageline.engine.types import StageRecord
from stageline.errors import BadInput
from stageline.report.idle import cause_shares
from stageline.report.rundir import RERUN, read_stages, read_summary
from stageline.report.summary import Summary
from stageline.units import NS_PER_S, format_duration

_SKIPPED = {"-o", "--output", "--events", "--json"}  # they change what is written, not what is computed
SAME = 0.0005  # relative change that prints as none


class Run(msgspec.Struct, frozen=True):
    """One run directory, named as the user named it."""

    name: str
    summary: Summary
    stages: list[StageRecord]


class Row(msgspec.Struct, frozen=True):
    """One figure of every run; `better` says which direction is good: 1 more, -1 less, 0 neither."""

    name: str
    group: str
    values: list[float | None]
    text: list[str]
    better: int

    def change(self, run: int) -> float | None:
        """Relative to the first run; None when either is missing or the first is zero."""
        first, value = self.values[0], self.values[run]
        return None if value is None or not first else value / first - 1

    def verdict(self, run: int) -> str:
        """`better`, `worse` or nothing, against the first run."""
        change = self.change(run)
        if change is None or not self.better or abs(change) < SAME:
            return ""
        return "better" if change * self.better > 0 else "worse"


class Comparison(msgspec.Struct, frozen=True):
    """`changes`: what differs in how the runs were made, as (name, value in each run)."""

    names: list[str]
    changes: list[tuple[str, list[str]]]
    rows: list[Row]


def read_runs(directories: Sequence[Path]) -> list[Run]:
    """The runs, complete ones only. BadInput names the directory at fault."""
    runs = []
    for directory in directories:
        summary = read_summary(directory)
        if not summary.complete:
            raise BadInput(str(directory), None, "the run broke off and has no stages", RERUN)
        runs.append(Run(str(directory), summary, read_stages(directory)))
    return runs


def compare(runs: Sequence[Run]) -> Comparison:
    """At least two runs; the first is what others are measured against."""
    return Comparison([r.name for r in runs], changes(runs), [make(runs) for make in _ROWS])


def changes(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Flags and facts whose values are not the same everywhere; `-` where a run has none."""
    facts = [_facts(run.summary) for run in runs]
    names = dict.fromkeys(name for fact in facts for name in fact)
    rows = [(name, [fact.get(name, "-") for fact in facts]) for name in names]
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def _facts(summary: Summary) -> dict[str, str]:
    topology = msgspec.structs.asdict(summary.topology)
    facts = {name: str(value) for name, value in topology.items()}
    facts["plan_digest"] = facts["plan_digest"][:12]
    facts |= {"workload": summary.workload, "seed": str(summary.seed), "credits": str(summary.credits)}
    facts["engine"] = summary.engine
    return facts | {k: v for k, v in flags(summary.command).items() if k.removeprefix("--") not in facts}


def flags(command: str) -> dict[str, str]:
    """`--name value`, `--name=value` and `--name` of a command line; positional arguments are left out."""
    found: dict[str, str] = {}
    words = shlex.split(command)
    for word, following in zip(words, [*words[1:], "-"], strict=True):
        name, equals, value = word.partition("=")
        if not name.startswith("-") or name in _SKIPPED:
            continue
        found[name] = value if equals else ("yes" if following.startswith("-") else following)
    return found


def _row(
    name: str,
    group: str,
    get: Callable[[Run], float | None],
    show: Callable[[float], str],
    better: int,
) -> Callable[[Sequence[Run]], Row]:
    def make(runs: Sequence[Run]) -> Row:
        values = [get(run) for run in runs]
        return Row(name, group, values, ["-" if v is None else show(v) for v in values], better)

    return make


def _latency(name: str, percentile: str) -> Callable[[Sequence[Run]], Row]:
    def get(run: Run) -> float | None:
        value: float | None = getattr(getattr(run.summary, f"{name}_s"), percentile)
        return value

    label = "queue" if name == "queue" else name.upper()
    return _row(f"{label} {percentile}", "latency", get, lambda s: format_duration(s * NS_PER_S), -1)


def _share(cause: str) -> Callable[[Sequence[Run]], Row]:
    better = 1 if cause == "busy" else -1 if cause in BUBBLES else 0
    return _row(cause, "stages' time", lambda run: cause_shares(run.stages)[cause], _percent, better)


def _percent(value: float) -> str:
    return "0 %" if value == 0 else "<0.1 %" if value < 0.0005 else f"{100 * value:.1f} %"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.4g}"


_ROWS: tuple[Callable[[Sequence[Run]], Row], ...] = (
    _row("output tokens/s", "throughput", lambda r: r.summary.output_tokens_per_s, _figure, 1),
    _row("requests/s", "throughput", lambda r: r.summary.requests_per_s, _figure, 1),
    _row("finished", "throughput", lambda r: r.summary.requests["finished"], _figure, 1),
    _row("preemptions", "throughput", lambda r: r.summary.preemptions, _figure, -1),
    *(_latency(name, p) for name in ("ttft", "tpot", "itl", "e2e", "queue") for p in ("p50", "p99")),
    _row("bubbles", "stages' time", lambda r: r.summary.bubble_ratio, _percent, -1),
    *(_share(cause) for cause in ("busy", *SHOWN)),
    _row("KV peak", "KV", lambda r: r.summary.kv_peak_ratio, _percent, 0),
)
