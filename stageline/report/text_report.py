"""A run as text: figures, latency percentiles, and where every stage spent its time. Fits 80 columns."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stageline.cost.bounds import shares_text
from stageline.engine.causes import CAUSE, SHOWN
from stageline.engine.types import StageRecord
from stageline.plan.report import ranges
from stageline.report.backtest import backtest_text
from stageline.report.distributions import Latency
from stageline.report.grouping import StageGroup, group_stages
from stageline.report.hand_overs import HandOverSummary
from stageline.report.pool_summary import PoolSummary
from stageline.report.prefix import prefix_text
from stageline.report.settings import run_label, settings_text
from stageline.report.speculation import speculation_text
from stageline.report.summary import Advice, Summary
from stageline.report.tiers import tier_text
from stageline.report.tuned import TuneResult
from stageline.report.utilisation import Utilisation
from stageline.units import NS_PER_S, bytes_text, counted, figure_text, format_duration

MAX_STAGE_ROWS = 32
RANGE_SHARE = 0.01  # difference of shares of the window from which a row of several stages shows both ends
MAX_TUNED_LINES = 3
WORDY_CAUSES, LETTERS = 9, 4  # with more columns of causes than that, headings have so many letters
_LATENCIES = (("TTFT", "ttft_s"), ("TPOT", "tpot_s"), ("ITL", "itl_s"), ("E2E", "e2e_s"), ("queue", "queue_s"))


def run_report(
    summary: Summary,
    stages: Sequence[StageRecord],
    groups: RenderableType | None = None,
    *,
    directory: Path | None = None,
    tuned: TuneResult | None = None,
) -> RenderableType:
    """Everything, top to bottom; `groups` is the table of the groups' sizes.

    `tuned` is what an earlier tuning of the run in `directory` measured.
    """
    parts: list[RenderableType] = [figures_table(summary)]
    parts += [pool_table(summary.pools)] if summary.pools else []
    parts += [latency_table(summary), stage_table(stages, name=summary.replica_name)]
    if groups is not None:
        parts.append(groups)
    if summary.slo is not None:
        parts.append(slo_verdict(summary))
    parts += [advice_line(line) for line in summary.binds]
    parts += [Text(line) for line in tuning_lines(summary, directory, tuned)]
    parts.append(Text(f"digest {summary.digest}" if summary.digest else "incomplete: the run broke off, no digest"))
    return Group(*parts)


def tuning_lines(
    summary: Summary, directory: Path | None, tuned: TuneResult | None, most: int = MAX_TUNED_LINES
) -> list[str]:
    """At most so many lines of what was measured, or how to measure it; nothing for a run that can't be made again."""
    if tuned is not None:
        found = tuned.advice()
        lines = [f"tried for {tuned.objective}: {line}" for line in found[:most]]
        return [*lines, tuned.command] if found else [f"tried for {tuned.objective}: nothing found that helps"]
    if summary.rerun is None:
        return []
    where = shlex.quote(str(directory)) if directory else "DIR, after a run with -o DIR"
    return [f"to try what can move it: stageline tune {where}"]


def advice_line(advice: Advice) -> Text:
    """What was seen, and what can move it."""
    return Text.assemble(("binds: ", "bold"), f"{advice.seen}. What can move it: {advice.moved_by}.")


def figures_table(summary: Summary) -> Table:
    """Name and value of the main figures."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    t, outcomes = summary.topology, summary.requests
    if t.fleet:
        table.add_row("fleet", f"{t.fleet}: {t.model} on {t.devices} x {t.device}")
    else:
        replicas = f", {t.replicas} replicas" if t.replicas > 1 else ""
        size = f"{counted(t.stages, 'stage')}, {counted(t.visits, 'visit')}"
        table.add_row("cluster", f"{t.model} on {t.devices} x {t.device}: {size}{replicas}")
    if len(summary.pools) < 2 and (label := run_label(summary.plan, summary.settings)):
        table.add_row("driven as", f"{label}: {settings_text(summary.settings)}")
    for pool in summary.pools if len(summary.pools) > 1 else ():
        label = run_label({**pool.plan, "dp": 1}, pool.settings)
        table.add_row(f"pool {pool.name}", f"{label or pool.device}: {settings_text(pool.settings)}")
    table.add_row("workload", Text(summary.workload))
    others = [f"{n:,} {name}" for name, n in outcomes.items() if n and name not in ("total", "finished")]
    table.add_row("requests", ", ".join([f"{outcomes['finished']:,} of {outcomes['total']:,} finished", *others]))
    if odd := [f"{n:,} {name.replace('_', ' ')}" for name, n in summary.workload_rows.items() if n and name in _ODD]:
        table.add_row("rows", ", ".join(odd))
    table.add_row(
        "emulated", f"{format_duration(summary.emulated_s * NS_PER_S)} in {summary.wall_s:.1f} s of wall time"
    )
    for name, text in measured_rows(summary):
        table.add_row(name, text)
    table.add_row("bubbles", f"{summary.bubble_ratio:.1%} of the time in which there was work{_binding(summary)}")
    if u := summary.utilisation:
        table.add_row("utilisation", f"{u.mfu:.1%} of peak FLOPs (MFU), {u.bandwidth:.1%} of memory bandwidth")
        for stages, text in bound_lines(u):
            table.add_row("bound by", f"{text} (stage {stages}; mean microbatch)")
    for name, text in _kv_rows(summary):
        table.add_row(name, text)
    if summary.speculation is not None:
        table.add_row("speculation", speculation_text(summary.speculation))
    if summary.preemptions:
        table.add_row("preemptions", f"{summary.preemptions:,}")
    return table


def _kv_rows(summary: Summary) -> Iterator[tuple[str, str]]:
    """Where KV came from and went."""
    if summary.hand_over is not None:
        yield "KV transfer", _transfers(summary.hand_over)
    if summary.prefix_cache is not None:
        yield "prefix cache", prefix_text(summary.prefix_cache)
    for tier in summary.tiers:
        yield f"KV in {tier.tier}", tier_text(tier)


BOUND_SHOWN = 4


def bound_lines(found: Utilisation) -> list[tuple[str, str]]:
    """(stages, shares) of what bounds the stages' operations, alike ones together, the most numerous first."""
    alike: dict[str, list[int]] = {}
    for row in found.stages:
        if row.bound_by:
            alike.setdefault(shares_text(row.bound_by), []).append(row.stage)
    most = sorted(alike.items(), key=lambda x: (-len(x[1]), x[1]))
    return [(ranges(tuple(stages)), text) for text, stages in most[:BOUND_SHOWN]]


def measured_rows(summary: Summary) -> list[tuple[str, str]]:
    """Name and value of what was measured in the window, and of what it cost."""
    m, cost, rows = summary.measured, summary.cost, []
    if m is not None:
        rows = [("measured in", m.window + (f"; {m.remark}" if m.remark else ""))]
        if m.offered_requests_per_s is not None:
            rows.append(("offered", f"{figure_text(m.offered_requests_per_s)} requests/s"))
        served = f"{figure_text(m.served_requests_per_s)} requests/s, "
        rows.append(("served", f"{served}{figure_text(m.served_output_tokens_per_s)} output tokens/s"))
        whole = f"{figure_text(summary.requests_per_s)} requests/s, "
        whole += f"{figure_text(summary.output_tokens_per_s)} output tokens/s"
        if summary.requests_per_s != m.served_requests_per_s:
            rows.append(("whole run", f"{whole}, fill and drain included"))
        if m.goodput_requests_per_s is not None:
            rows.append(("goodput", f"{figure_text(m.goodput_requests_per_s)} requests/s that kept the objective"))
    if cost is not None:
        tokens = cost.per_million_output_tokens
        million = "no output token was served" if tokens is None else f"{figure_text(tokens)} per million output tokens"
        rows.append(("cost", f"{figure_text(cost.per_hour)} per hour; {million}"))
    return rows


_ODD = ("skipped_bad", "left_out_failed", "output_raised", "prompt_raised", "reordered")


def _binding(summary: Summary) -> str:
    name = summary.stage_name
    parts = [f"busiest stage {name(summary.busiest_stage)}"] if summary.busiest_stage is not None else []
    if summary.binding_stage is not None:
        parts.append(f"KV binds at stage {name(summary.binding_stage)}")
    return f"; {', '.join(parts)}" if parts else ""


def latency_table(summary: Summary) -> Table:
    """Latency percentiles."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("latency")
    for name in ("mean", "p50", "p90", "p95", "p99", "max"):
        table.add_column(name, justify="right", no_wrap=True)
    errors = [backtest_text(summary.plan, field) for _, field in _LATENCIES]
    if any(errors):
        table.add_column("backtest", justify="right", no_wrap=True)
        table.caption = f"backtest: how far the means of profile {summary.plan.get('profile')} were off on new requests"
        table.caption_justify = "left"
    for (name, field), error in zip(_LATENCIES, errors, strict=True):
        values: Latency = getattr(summary, field)
        cells = (values.mean, values.p50, values.p90, values.p95, values.p99, values.max)
        shown = ["-" if v is None else format_duration(v * NS_PER_S) for v in cells]
        table.add_row(name, *shown, *([error] if any(errors) else []))
    return table


def _transfers(found: HandOverSummary) -> str:
    times = found.transfer_s
    text = f"{counted(found.requests, 'hand-over')}, {bytes_text(found.sent_bytes)}"
    if times.p50 is None or times.p99 is None:
        return text
    text += f"; {format_duration(times.p50 * NS_PER_S)} median, {format_duration(times.p99 * NS_PER_S)} p99 to landing"
    gap = found.gap_s.p50
    return text if gap is None else f"{text}; median {format_duration(gap * NS_PER_S)} after the first token"


def pool_table(pools: Sequence[PoolSummary]) -> Table:
    """What each pool of a fleet served, and how full it was."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=0)
    preempted = ["preempt"] if any(pool.preemptions for pool in pools) else []
    more = [*preempted, *(["port%"] if any(pool.ports for pool in pools) else [])]
    for name in ("pool", "reqs", "in tok/s", "out tok/s", "busy%", "queue p50", "p99", *more, "kv top%"):
        table.add_column(name, justify="left" if name == "pool" else "right", no_wrap=name != "pool")
    for pool in pools:
        queue = [None if v is None else v * NS_PER_S for v in (pool.queue_s.p50, pool.queue_s.p99)]
        table.add_row(
            pool.label,
            f"{pool.requests:,}",
            figure_text(pool.prompt_tokens_per_s),
            figure_text(pool.output_tokens_per_s),
            _percent(pool.busy_ratio),
            *("-" if value is None else format_duration(value) for value in queue),
            *([f"{pool.preemptions:,}"] if preempted else []),
            *([_percent(pool.ports.busiest)] if pool.ports else []),
            _percent(pool.kv_peak_ratio),
        )
    return table


def stage_table(
    stages: Sequence[StageRecord], max_rows: int = MAX_STAGE_ROWS, name: Callable[[int], str] = str
) -> Table:
    """Busy and idle shares of the window in %; similar neighbours share a row, only causes that occurred are shown.

    `name` is what a replica is called.
    """
    groups = group_stages(stages, max_rows, name)
    causes = [c for c in SHOWN if any(g.idle_ratio[c] > 0 for g in groups)]
    kv = any(s.kv_budget_bytes for s in stages)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=0)
    table.caption = _caption(stages, groups)
    table.caption_justify = "left"
    table.add_column("stage", no_wrap=True)
    letters, top = (None, "kv top%") if len(causes) <= WORDY_CAUSES else (LETTERS, "kv%")
    for heading in ("busy%", *((CAUSE[c].heading or c)[:letters] for c in causes), *([top] if kv else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    for group in groups:
        cells = [_range(*group.ranges[part]) for part in ("busy", *causes)]
        table.add_row(group.label, *cells, *([_percent(group.kv_peak_ratio)] if kv else []))
    return table


def _caption(stages: Sequence[StageRecord], groups: Sequence[StageGroup]) -> str:
    text = "busy and idle by cause, % of the run's window"
    if len(groups) < len(stages):
        text += "; rows of several stages show the least and the most where they differ"
    return text


def _range(least: float, most: float) -> str:
    """One figure where stages are alike, else the least and the most: a mean would hide what they are."""
    if most - least <= RANGE_SHARE:
        return _percent(most)
    return f"{100 * least:.0f}-{100 * most:.0f}"


def _percent(ratio: float) -> str:
    if ratio == 0:
        return "-"
    return "<0.1" if ratio < 0.0005 else f"{100 * ratio:.1f}"


def judged(summary: Summary) -> str:
    """Of which requests an attainment is; empty where it is of all."""
    slo = summary.slo
    if slo is None or not slo.requests or slo.requests == summary.requests["total"]:
        return ""
    return f" of the {slo.requests:,} that arrived in the measurement window"


def slo_verdict(summary: Summary) -> Text:
    """Whether the objective was met."""
    slo = summary.slo
    if slo is None:
        raise ValueError("the run had no objective")
    verdict = "met" if slo.met else "missed"
    text = f"SLO {verdict}: {slo.objective}; {slo.attainment:.2%} good{judged(summary)}"
    return Text(text, style="green" if slo.met else "bold red")
