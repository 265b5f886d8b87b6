"""Remarks on a run: what its figures alone do not show."""

from fractions import Fraction

from stageline.errors import BadInput
from stageline.load.probe import ServerFacts, header_dilation
from stageline.load.recorder import LoadRecorder
from stageline.load.summary import ClockFigures
from stageline.report.distributions import rank_of
from stageline.units import format_duration

_SLOW_RATIO = 1.2
_LATE_SHARE = 0.05  # of the median TTFT; a p99 send lag above it gets a remark


def remarks_of(
    recorder: LoadRecorder, facts: ServerFacts, wall: ClockFigures, emulated: ClockFigures | None
) -> list[str]:
    """All remarks on a run."""
    tally = recorder.total.tally
    found = [f"{reason}: {detail}" for reason, detail in recorder.details.items() if detail]
    if tally.other_prompts:
        found.append(
            f"in {tally.other_prompts:,} prompts the server counts other tokens than were sent; token ids are exact"
        )
    if tally.other_outputs:
        found.append(f"{tally.other_outputs:,} replies are longer or shorter than the workload says")
    if others := sorted(text for text in recorder.dilations if not _same(text, facts.dilation)):
        found.append(
            f"replies state another dilation than the probe found: {', '.join(others)}; emulated figures are off"
        )
    if facts.dilation is not None and emulated is not None:
        found += slowness(wall.latencies.e2e_s.mean, emulated.latencies.e2e_s.mean, facts.dilation)
    return found + _lateness(recorder)


def slowness(wall_s: float | None, emulated_s: float | None, dilation: Fraction) -> list[str]:
    """Warns of a host that does not keep up with its dilation: wall figures then measure that host, not the cluster."""
    if not wall_s or not emulated_s or wall_s <= _SLOW_RATIO * emulated_s * dilation:
        return []
    ratio = wall_s / float(emulated_s * dilation)
    return [f"replies took {ratio:.1f} x the wall time that the dilation implies: the server's host did not keep up"]


def _same(text: str, dilation: Fraction | None) -> bool:
    """Whether a header's dilation, which has six digits, is this one."""
    try:
        return dilation is not None and abs(header_dilation(text) / dilation - 1) < Fraction(1, 10**5)
    except BadInput:
        return False


def _lateness(recorder: LoadRecorder) -> list[str]:
    """Warns of late sending: if it is a large part of the latency, the run measured the client."""
    tally = recorder.total.tally
    ttft_ns = tally.wall.median_ttft_ns()
    if not tally.lag.count or ttft_ns is None:
        return []
    p99_ns = tally.lag.at_ranks([rank_of(99, tally.lag.count)])[0]
    if p99_ns <= _LATE_SHARE * ttft_ns:
        return []
    late = f"1 % of the calls were sent {format_duration(p99_ns)} or more after their time"
    return [f"{late} (latencies include it): this client, its host or --connections was the limit"]
