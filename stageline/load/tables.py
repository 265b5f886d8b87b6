"""The report of a load run in the terminal, within 80 columns."""

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stageline.load.summary import ClockFigures, LoadSummary
from stageline.report.distributions import Latency
from stageline.units import NS_PER_S, format_duration

LATENCY_ROWS = (("TTFT", "ttft_s"), ("TPOT", "tpot_s"), ("ITL", "itl_s"), ("E2E", "e2e_s"))
STATISTICS = ("mean", "p50", "p90", "p95", "p99", "max")


def load_report(summary: LoadSummary) -> RenderableType:
    """The whole report."""
    parts: list[RenderableType] = [figure_table(summary), load_latency_table(summary)]
    if summary.steps:
        parts.append(step_table(summary))
    parts += [Text(f"note: {remark}") for remark in summary.remarks]
    if summary.slo is not None:
        parts.append(load_slo_verdict(summary))
    if not summary.complete:
        parts.append(Text("incomplete: the run was interrupted", style="bold red"))
    return Group(*parts)


def figure_rows(summary: LoadSummary) -> list[tuple[str, str]]:
    """(name, value) of the main figures."""
    calls = summary.calls
    others = [f"{n:,} {name}" for name, n in calls.items() if n and name not in ("total", "finished")]
    reasons = ", ".join(f"{n:,} x {name}" for name, n in summary.reasons.items())
    rows = [
        ("server", f"{summary.url} ({summary.endpoint}), model {summary.model}"),
        ("workload", summary.workload + (f", {summary.turns} turns each" if summary.turns > 1 else "")),
        ("clock", _clock(summary)),
        ("calls", ", ".join([f"{calls['finished']:,} of {calls['total']:,} finished", *others])),
    ]
    if summary.warmup_calls:
        rows.append(("warm-up", f"{summary.warmup_calls:,} calls before these, not counted"))
    if summary.retries:
        again = f"{summary.retried_calls:,} calls were sent again, {summary.retries:,} times in all"
        rows.append(("retries", f"{again}; their waits are part of the latencies"))
    if reasons:
        rows.append(("reasons", reasons))
    rows.append(("tokens", f"{summary.prompt_tokens:,} in, {summary.output_tokens:,} out in {summary.chunks:,} chunks"))
    for name, clock in clocks(summary):
        rate = f"{clock.output_tokens_per_s:,.1f} output tokens/s, {clock.requests_per_s:,.2f} requests/s"
        rows.append((name, f"{format_duration(clock.duration_s * NS_PER_S)}: {rate}"))
    if summary.send_lag_s.p99 is not None and summary.send_lag_s.p50 is not None:
        p50, p99 = (format_duration(v * NS_PER_S) for v in (summary.send_lag_s.p50, summary.send_lag_s.p99))
        rows.append(("send lag", f"p50 {p50}, p99 {p99} of wall time from intended start to sending"))
    return rows


def _clock(summary: LoadSummary) -> str:
    if summary.dilation is None:
        return "wall (the server states no dilation)"
    return f"{summary.clock}; dilation {summary.dilation:g}: that much wall time per emulated time"


def clocks(summary: LoadSummary) -> list[tuple[str, ClockFigures]]:
    """The clocks that this run has, the one that it is judged on first."""
    found = [("wall", summary.wall)]
    if summary.emulated is not None:
        found.append(("emulated", summary.emulated))
    return sorted(found, key=lambda pair: pair[0] != summary.clock)


def figure_table(summary: LoadSummary) -> Table:
    """Name and value of the main figures, as a table."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, value in figure_rows(summary):
        table.add_row(name, Text(value))
    return table


def load_latency_table(summary: LoadSummary) -> Table:
    """Latency percentiles on every clock."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("from intended start", no_wrap=True)
    for name in STATISTICS:
        table.add_column(name, justify="right", no_wrap=True)
    for clock, values in clocks(summary):
        for name, field in LATENCY_ROWS:
            table.add_row(f"{name} {clock}", *cells(getattr(values.latencies, field)))
        if clock == "emulated":
            table.add_row("queue emulated", *cells(values.latencies.queue_s))
    return table


def cells(values: Latency) -> list[str]:
    """The statistics of one latency as texts, in the order of STATISTICS."""
    found = (getattr(values, name) for name in STATISTICS)
    return ["-" if v is None else format_duration(v * NS_PER_S) for v in found]


STEP_COLUMNS = ("finished", "req/s", "tokens/s", "TTFT p50", "TTFT p99", "TPOT p50", "TPOT p99")


def step_rows(summary: LoadSummary) -> list[list[str]]:
    """One row per rate step, on the clock that the run is judged on."""
    rows = []
    for step in summary.steps:
        clock = step.emulated if summary.clock == "emulated" and step.emulated is not None else step.wall
        ttft, tpot = clock.latencies.ttft_s, clock.latencies.tpot_s
        times = (ttft.p50, ttft.p99, tpot.p50, tpot.p99)
        shown = ["-" if v is None else format_duration(v * NS_PER_S) for v in times]
        finished = f"{step.calls['finished']:,} of {step.calls['total']:,}"
        rates = [f"{clock.requests_per_s:,.2f}", f"{clock.output_tokens_per_s:,.1f}"]
        rows.append([step.step, finished, *rates, *shown])
    return rows


def step_table(summary: LoadSummary) -> Table:
    """Rate steps as a table."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("step")
    for name in STEP_COLUMNS:
        table.add_column(name, justify="right")
    for row in step_rows(summary):
        table.add_row(*row)
    return table


def slo_text(summary: LoadSummary) -> str:
    """Whether the SLO was met; empty without one."""
    slo = summary.slo
    if slo is None:
        return ""
    goodput = f"goodput {slo.goodput_requests_per_s:,.2f} requests/s"
    verdict = "met" if slo.met else "missed"
    return f"SLO {verdict}: {slo.objective} ({summary.clock}); {slo.attainment:.2%} good, {goodput}"


def load_slo_verdict(summary: LoadSummary) -> Text:
    """`slo_text` in colour."""
    return Text(slo_text(summary), style="green" if summary.slo and summary.slo.met else "bold red")
