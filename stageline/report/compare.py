"""Runs side by side: which settings differ, and how the figures changed."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from stageline.engine.causes import SHOWN
from stageline.engine.types import StageRecord
from stageline.errors import BadInput, UsageError
from stageline.report.backtest import PREFIX
from stageline.report.idle import cause_shares
from stageline.report.pool_summary import PoolSummary
from stageline.report.rundir import RERUN, read_stages, read_summary
from stageline.report.settings import Facts, run_label
from stageline.report.summary import Summary
from stageline.units import NS_PER_S, figure_text, format_duration

_SKIPPED = {"-o", "--output", "--events", "--json"}  # they change what is written, not what is computed
SAME_RATIO = 0.0005  # relative change that prints as none


class ComparedRun(msgspec.Struct, frozen=True):
    """One run directory, named as the user named it."""

    name: str
    summary: Summary
    stages: list[StageRecord]


class ComparisonRow(msgspec.Struct, frozen=True):
    """One figure of every run; `better` says which direction is good: 1 more, -1 less, 0 neither."""

    name: str
    group: str
    values: list[float | None]
    text: list[str]
    better: int

    def change(self, run: int) -> float | None:
        """Relative to the first run; None when either is missing or the first is zero. UsageError for no such run."""
        if not isinstance(run, int) or not 0 <= run < len(self.values):
            raise UsageError(f"there is no run {run!r}: {len(self.values)} are compared, from 0, the baseline")
        first, value = self.values[0], self.values[run]
        return None if value is None or not first else value / first - 1

    def verdict(self, run: int) -> str:
        """`better` or `worse` than the first run; empty if neither."""
        change = self.change(run)
        if change is None or not self.better or abs(change) < SAME_RATIO:
            return ""
        return "better" if change * self.better > 0 else "worse"


class Comparison(msgspec.Struct, frozen=True):
    """`changes`: the settings that differ, as (name, value in each run)."""

    names: list[str]
    changes: list[tuple[str, list[str]]]
    rows: list[ComparisonRow]


MakeRow = Callable[[Sequence[ComparedRun]], ComparisonRow]


def read_runs(directories: Sequence[Path]) -> list[ComparedRun]:
    """The runs, complete ones only. BadInput names the directory that is not."""
    runs = []
    for directory in directories:
        summary = read_summary(directory)
        if not summary.complete:
            raise BadInput(str(directory), None, "the run broke off and has no stages", RERUN)
        runs.append(ComparedRun(str(directory), summary, read_stages(directory)))
    return runs


def compare_runs(runs: Sequence[ComparedRun]) -> Comparison:
    """At least two runs; changes are relative to the first."""
    rows = [make(runs) for make in (*_ROWS, *_pool_rows(runs))]
    return Comparison([r.name for r in runs], changed_settings(runs), rows)


def changed_settings(runs: Sequence[ComparedRun]) -> list[tuple[str, list[str]]]:
    """Flags and other settings whose values differ between the runs; `-` where a run has none."""
    facts = [_settings(run.summary) for run in runs]
    names = dict.fromkeys(name for fact in facts for name in fact)
    rows = [(name, [fact.get(name, "-") for fact in facts]) for name in names]
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def _settings(summary: Summary) -> dict[str, str]:
    topology = msgspec.structs.asdict(summary.topology)
    facts = {name: str(value) for name, value in topology.items()}
    facts["plan_digest"] = facts["plan_digest"][:12]
    facts |= {} if facts["fleet"] else {"fleet": "-"}
    facts |= {"driven as": run_label(summary.plan, summary.settings)} if summary.plan and not summary.pools else {}
    facts |= {f"plan {name}": str(value) for name, value in summary.plan.items() if not _of_making(name)}
    facts |= {"workload": summary.workload, "seed": str(summary.seed), "credits": str(summary.credits)}
    facts |= {name: str(value) for name, value in summary.settings.items()}
    facts |= _pool_settings(summary)
    facts["engine"] = summary.engine
    return facts | {k: v for k, v in command_flags(summary.command).items() if k.removeprefix("--") not in facts}


def _pool_settings(summary: Summary) -> dict[str, str]:
    """What each pool of a fleet is and how it is driven, as far as pools differ."""
    found: dict[str, str] = {}
    for pool in summary.pools:
        facts: Facts = {"pool": pool.label, "role": pool.role, "device": pool.device, "model": pool.model}
        facts |= {f"plan {name}": value for name, value in pool.plan.items() if not _of_making(name)}
        facts |= pool.settings
        shared = {f"plan {name}" for name in summary.plan} | set(summary.settings)
        found |= {f"{pool.name}: {name}": str(value) for name, value in facts.items() if name not in shared}
    return found


def _of_making(name: str) -> bool:
    """Facts of a plan that other rows of the comparison tell, too."""
    return name in ("command", "profile") or name.startswith(PREFIX)


def command_flags(command: str) -> dict[str, str]:
    """The options of a command line: `--name value`, `--name=value` and `--name`; without positional arguments."""
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
    get: Callable[[ComparedRun], float | None],
    show: Callable[[float], str],
    better: int,
) -> MakeRow:
    def make(runs: Sequence[ComparedRun]) -> ComparisonRow:
        values = [get(run) for run in runs]
        return ComparisonRow(name, group, values, ["-" if v is None else show(v) for v in values], better)

    return make


def _latency(name: str, percentile: str) -> MakeRow:
    def get(run: ComparedRun) -> float | None:
        value: float | None = getattr(getattr(run.summary, f"{name}_s"), percentile)
        return value

    label = "queue" if name == "queue" else name.upper()
    return _row(f"{label} {percentile}", "latency", get, lambda s: format_duration(s * NS_PER_S), -1)


def _measured(name: str, field: str, better: int) -> MakeRow:
    """A rate of the measurement window."""

    def get(run: ComparedRun) -> float | None:
        value: float | None = getattr(run.summary.measured, field, None)
        return value

    return _row(name, "measured", get, _figure, better)


def _sent_gb(run: ComparedRun) -> float | None:
    return run.summary.hand_over.sent_bytes / 1e9 if run.summary.hand_over else None


def _transfer(percentile: str) -> MakeRow:
    """A time from the start of a request's KV transfer to its landing."""

    def get(run: ComparedRun) -> float | None:
        value: float | None = getattr(run.summary.hand_over.transfer_s, percentile) if run.summary.hand_over else None
        return value

    return _row(f"KV transfer {percentile}", "KV", get, lambda s: format_duration(s * NS_PER_S), -1)


def _token_cost(run: ComparedRun) -> float | None:
    return run.summary.cost.per_million_output_tokens if run.summary.cost else None


def _share(cause: str) -> MakeRow:
    """Neither direction is good: shares explain throughput and latency, and may fall while both get worse."""
    return _row(cause, "stages' time", lambda run: cause_shares(run.stages)[cause], _percent, 0)


def _pool_rows(runs: Sequence[ComparedRun]) -> Iterator[MakeRow]:
    """Figures of the pools whose names all runs have."""
    for pool in runs[0].summary.pools:
        if all(any(other.name == pool.name for other in run.summary.pools) for run in runs):
            yield _of_pool(pool.name, "requests", lambda p: p.requests, _figure, 0)
            yield _of_pool(pool.name, "tokens/s", lambda p: p.output_tokens_per_s, _figure, 1)
            yield _of_pool(pool.name, "busy", lambda p: p.busy_ratio, _percent, 0)
            yield _of_pool(pool.name, "queue p99", lambda p: p.queue_s.p99, lambda s: format_duration(s * NS_PER_S), -1)
            yield _of_pool(pool.name, "KV peak", lambda p: p.kv_peak_ratio, _percent, 0)
            yield _of_pool(pool.name, "ports", lambda p: p.ports.busiest if p.ports else None, _percent, 0)


def _of_pool(
    name: str, figure: str, get: Callable[[PoolSummary], float | None], show: Callable[[float], str], better: int
) -> MakeRow:
    def value(run: ComparedRun) -> float | None:
        return get(next(pool for pool in run.summary.pools if pool.name == name))

    return _row(f"{name} {figure}", f"pool {name}", value, show, better)


def _percent(value: float) -> str:
    return "0 %" if value == 0 else "<0.1 %" if value < 0.0005 else f"{100 * value:.1f} %"


def _figure(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if value >= 1e-3 else figure_text(value)  # never with an exponent


_ROWS: tuple[MakeRow, ...] = (
    _measured("offered requests/s", "offered_requests_per_s", 0),
    _measured("served requests/s", "served_requests_per_s", 1),
    _measured("served tokens/s", "served_output_tokens_per_s", 1),
    _measured("goodput requests/s", "goodput_requests_per_s", 1),
    _row("cost per 1M tokens", "measured", _token_cost, _figure, -1),
    _row("whole run tokens/s", "throughput", lambda r: r.summary.output_tokens_per_s, _figure, 1),
    _row("whole run requests/s", "throughput", lambda r: r.summary.requests_per_s, _figure, 1),
    _row("finished", "throughput", lambda r: r.summary.requests["finished"], _figure, 1),
    _row("preemptions", "throughput", lambda r: r.summary.preemptions, _figure, -1),
    *(_latency(name, p) for name in ("ttft", "tpot", "itl", "e2e", "queue") for p in ("p50", "p99")),
    _row("bubbles", "stages' time", lambda r: r.summary.bubble_ratio, _percent, 0),
    *(_share(cause) for cause in ("busy", *SHOWN)),
    _row("KV peak", "KV", lambda r: r.summary.kv_peak_ratio, _percent, 0),
    _row("KV sent, GB", "KV", _sent_gb, _figure, 0),
    _transfer("p50"),
    _transfer("p99"),
)
