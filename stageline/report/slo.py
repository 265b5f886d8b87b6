"""Service-level objectives: `ttft=2s,tpot=50ms,attainment=0.99`.

A request is good when it finished and met every bound given; one without a second token has no TPOT and meets any.
Attainment = good / requests that arrived in the measurement window; refused, failed and incomplete ones are not good.
Goodput = good requests that completed in the window / its length.
"""

from fractions import Fraction

import msgspec

from stageline.errors import BadInput
from stageline.report.request_times import RequestTimes
from stageline.units import duration_text, format_duration, parse_duration_ns, parse_ratio

DEFAULT_ATTAINMENT = Fraction(99, 100)
_NAMES = ("ttft", "tpot", "e2e", "attainment")


class Slo(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds in ns (None: no bound), and the share of requests that must be good."""

    ttft_ns: int | None = None
    tpot_ns: int | None = None
    e2e_ns: int | None = None
    attainment: Fraction = DEFAULT_ATTAINMENT

    def good(self, times: RequestTimes) -> bool:
        """Whether a finished request met every bound."""
        pairs = ((self.ttft_ns, times.ttft_ns), (self.tpot_ns, times.tpot_ns), (self.e2e_ns, times.e2e_ns))
        return all(bound is None or value is None or value <= bound for bound, value in pairs)

    def met(self, good: int, total: int) -> bool:
        """Whether enough of all requests were good; exact."""
        return good >= self.attainment * total

    def flag(self) -> str:
        """As `parse_slo` reads it, exactly."""
        bounds = (("ttft", self.ttft_ns), ("tpot", self.tpot_ns), ("e2e", self.e2e_ns))
        parts = [f"{name}={duration_text(ns)}" for name, ns in bounds if ns is not None]
        return ",".join([*parts, f"attainment={_ratio_text(self.attainment)}"])

    def text(self) -> str:
        """For people."""
        bounds = (("TTFT", self.ttft_ns), ("TPOT", self.tpot_ns), ("E2E", self.e2e_ns))
        shown = ", ".join(f"{name} ≤ {format_duration(ns)}" for name, ns in bounds if ns is not None)
        return f"{shown} for {100 * float(self.attainment):g} % of requests"


class SloResult(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a run met its objective: `slo` of summary.json."""

    objective: str
    good: int
    requests: int = 0  # that were judged: those that arrived in the window; 0: an older version, which judged all
    attainment: float
    required: float
    goodput_requests_per_s: float
    met: bool


def _ratio_text(ratio: Fraction) -> str:
    """A decimal if that is exact, else a fraction."""
    decimal = f"{float(ratio):.12g}"
    return decimal if "e" not in decimal and Fraction(decimal) == ratio else f"{ratio.numerator}/{ratio.denominator}"


def parse_slo(text: str, place: str = "--slo") -> Slo:
    """The text of the flag `place`. BadInput names the part at fault."""
    values: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or name not in _NAMES or name in values:
            reason = "given twice" if name in values else "unknown objective"
            raise BadInput(place, part, reason, "write it like ttft=2s,tpot=50ms,attainment=0.99; also e2e=")
        values[name] = value
    bounds = {f"{n}_ns": parse_duration_ns(v, f"{place} {n}") for n, v in values.items() if n != "attainment"}
    if not bounds:
        raise BadInput(place, text, "no bound", "give at least one of ttft=, tpot=, e2e=")
    attainment = DEFAULT_ATTAINMENT
    if "attainment" in values:
        attainment = parse_ratio(values["attainment"], f"{place} attainment")
        if attainment > 1:
            raise BadInput(f"{place} attainment", values["attainment"], "above 1", "give a share up to 1")
    return Slo(**bounds, attainment=attainment)
