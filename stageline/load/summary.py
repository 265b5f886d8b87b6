"""summary.json of a load run, with figures on both clocks."""

from fractions import Fraction

import msgspec

from stageline.load.tally import Latencies, Tally
from stageline.report.distributions import Histogram, Latency, latency
from stageline.report.slo import Slo, SloResult
from stageline.units import NS_PER_S


class LoadFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was run, and against what.

    `clock`: the time of rates, arrivals and the SLO, `wall` or `emulated`. `dilation`: wall time per emulated time;
    None: not emulated.
    """

    version: str
    command: str
    url: str
    endpoint: str
    model: str
    workload: str
    workload_rows: dict[str, int]
    seed: int
    clock: str
    dilation: float | None
    turns: int
    connections: int


class ClockFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Duration, rates and latencies on one clock."""

    duration_s: float
    requests_per_s: float
    output_tokens_per_s: float
    latencies: Latencies


class StepFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one rate step."""

    step: str
    calls: dict[str, int]
    good: int
    wall: ClockFigures
    emulated: ClockFigures | None


class LoadSummary(LoadFacts, frozen=True, kw_only=True):
    """The whole summary. Figures count the calls after the warm-up."""

    complete: bool
    warmup_calls: int
    calls: dict[str, int]  # by outcome, and their total
    reasons: dict[str, int]  # of those that did not finish
    prompt_tokens: int
    output_tokens: int
    chunks: int
    retried_calls: int
    retries: int  # how often they were sent again
    other_prompt_lengths: int  # finished calls whose prompt the server counts differently
    other_output_lengths: int  # finished calls whose output is longer or shorter than asked for
    send_lag_s: Latency  # from the intended start to the sending, wall time
    wall: ClockFigures
    emulated: ClockFigures | None
    steps: list[StepFigures]
    slo: SloResult | None
    remarks: list[str]


def clock_figures(
    tally: Tally, gaps: Histogram, emulated_gaps: Histogram | None = None
) -> tuple[ClockFigures, ClockFigures | None]:
    """Figures in wall time and, if the server emulates, in emulated time.

    `emulated_gaps`: those that the server states; without any, those of wall time over the dilation.
    """
    wall = _figures(tally, tally.wall.latencies(latency(gaps)), Fraction(1))
    if tally.emulated is None or tally.dilation is None:
        return wall, None
    stated = emulated_gaps is not None and emulated_gaps.count
    itl = latency(emulated_gaps) if emulated_gaps is not None and stated else _over(latency(gaps), tally.dilation)
    return wall, _figures(tally, tally.emulated.latencies(itl), tally.dilation, tally.server.span_ns)


def _figures(tally: Tally, latencies: Latencies, factor: Fraction, span_ns: int | None = None) -> ClockFigures:
    """`span_ns`: on the clock itself; None: wall time over `factor`."""
    duration_s = float(tally.span_ns / factor if span_ns is None else span_ns) / NS_PER_S
    return ClockFigures(
        duration_s=duration_s,
        requests_per_s=tally.outcomes["finished"] / duration_s if duration_s else 0.0,
        output_tokens_per_s=tally.output_tokens / duration_s if duration_s else 0.0,
        latencies=latencies,
    )


def _over(values: Latency, factor: Fraction) -> Latency:
    """Wall seconds → emulated seconds."""
    pairs = ((name, getattr(values, name)) for name in Latency.__struct_fields__)
    return Latency(**{name: None if value is None else value / float(factor) for name, value in pairs})


def slo_result(slo: Slo, tally: Tally, goodput_span_s: float) -> SloResult:
    """Attainment over all calls; calls that were rejected or failed count as missed."""
    total = tally.calls
    return SloResult(
        objective=slo.text(),
        good=tally.good,
        requests=total,
        attainment=tally.good / total if total else 1.0,
        required=float(slo.attainment),
        goodput_requests_per_s=tally.good / goodput_span_s if goodput_span_s else 0.0,
        met=slo.met(tally.good, total),
    )


def counted(tally: Tally) -> dict[str, int]:
    """Calls by outcome, and their total."""
    return {"total": tally.calls} | {str(name): count for name, count in tally.outcomes.items()}
