"""summary.json of a load run: what was sent, what came back, on both clocks."""

from fractions import Fraction

import msgspec

from stageline.load.tally import Latencies, Tally
from stageline.report.series import Histogram, Latency, latency
from stageline.report.slo import Slo, SloResult
from stageline.units import NS_PER_S


class LoadFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the command knows. `clock`: whose time rates, trace times and the SLO are in, `wall` or `emulated`.
    `dilation`: wall time per emulated time; None: not emulated.
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
    """One clock: how long the run was on it, and its rates and latencies."""

    duration_s: float
    requests_per_s: float
    output_tokens_per_s: float
    latencies: Latencies


class StepFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One rate step."""

    step: str
    calls: dict[str, int]
    good: int
    wall: ClockFigures
    emulated: ClockFigures | None


class LoadSummary(LoadFacts, frozen=True, kw_only=True):
    """Figures are of the calls after the warm-up."""

    complete: bool
    warmup_calls: int
    calls: dict[str, int]  # by outcome, and their total
    reasons: dict[str, int]  # of those that did not finish
    prompt_tokens: int
    output_tokens: int
    chunks: int
    other_prompt_lengths: int  # finished calls whose prompt the server counts otherwise
    other_output_lengths: int  # finished calls whose output is longer or shorter than asked for
    send_lag_s: Latency  # from the intended start to the sending, wall time
    wall: ClockFigures
    emulated: ClockFigures | None
    steps: list[StepFigures]
    slo: SloResult | None
    remarks: list[str]


def clock_figures(tally: Tally, gaps: Histogram) -> tuple[ClockFigures, ClockFigures | None]:
    """Of the wall, and emulated."""
    wall = _figures(tally, tally.wall.latencies(latency(gaps)), Fraction(1))
    if tally.emulated is None or tally.dilation is None:
        return wall, None
    itl = _over(latency(gaps), tally.dilation)
    return wall, _figures(tally, tally.emulated.latencies(itl), tally.dilation)


def _figures(tally: Tally, latencies: Latencies, factor: Fraction) -> ClockFigures:
    duration_s = float(tally.span_ns / factor) / NS_PER_S
    return ClockFigures(
        duration_s=duration_s,
        requests_per_s=tally.outcomes["finished"] / duration_s if duration_s else 0.0,
        output_tokens_per_s=tally.output_tokens / duration_s if duration_s else 0.0,
        latencies=latencies,
    )


def _over(values: Latency, factor: Fraction) -> Latency:
    """Seconds of the wall → emulated seconds."""
    pairs = ((name, getattr(values, name)) for name in Latency.__struct_fields__)
    return Latency(**{name: None if value is None else value / float(factor) for name, value in pairs})


def slo_result(slo: Slo, tally: Tally, goodput_span_s: float) -> SloResult:
    """Attainment over all calls: those that were rejected or failed are not good."""
    total = tally.calls
    return SloResult(
        objective=slo.text(),
        good=tally.good,
        attainment=tally.good / total if total else 1.0,
        required=float(slo.attainment),
        goodput_requests_per_s=tally.good / goodput_span_s if goodput_span_s else 0.0,
        met=slo.met(tally.good, total),
    )


def counted(tally: Tally) -> dict[str, int]:
    """Calls by outcome, and their total."""
    return {"total": tally.calls} | {str(name): count for name, count in tally.outcomes.items()}
