"""Rate steps: `0.5:30s,1:60s,2` runs a workload at half its rate for 30 s, as it is for 60 s, then twice as fast.

A step is a factor and a duration, in workload time; only the last step may have no duration. Step i begins at time t_i
of the run, when w_i of the workload has been used: workload time w becomes t = t_i + (w - w_i) / factor_i, rounded
half-even. If the last step has a duration, nothing arrives after it.
"""

from fractions import Fraction

import msgspec

from stageline.errors import BadInput
from stageline.units import format_duration, parse_duration_ns, parse_ratio, rounded_ratio

_EXAMPLE = "write it like 0.5:30s,1:60s,2"


class Step(msgspec.Struct, frozen=True):
    """One rate step. `duration_ns` None: to the end of the workload."""

    factor: Fraction
    duration_ns: int | None

    def text(self) -> str:
        """For people."""
        length = "to the end" if self.duration_ns is None else f"for {format_duration(self.duration_ns)}"
        return f"rate x {float(self.factor):g} {length}"


class Ramp:
    """Maps workload times to times of the run. Both ascend."""

    def __init__(self, steps: tuple[Step, ...] = (Step(Fraction(1), None),)) -> None:
        self.steps = steps
        self._index = 0
        self._start_ns = 0
        self._used = Fraction(0)  # of the workload, before the step
        lengths = [step.duration_ns for step in steps if step.duration_ns is not None]
        self.end_ns = sum(lengths) if len(lengths) == len(steps) else None  # of the run; None: with the workload

    def at(self, workload_ns: int) -> tuple[int, int] | None:
        """(time in the run, index of the step); None after the last step. Call with ascending times."""
        while True:
            step = self.steps[self._index]
            left = workload_ns - self._used
            if step.duration_ns is None or left < step.factor * step.duration_ns:
                offset = left / step.factor
                return self._start_ns + rounded_ratio(offset.numerator, offset.denominator), self._index
            if self._index + 1 == len(self.steps):
                return None
            self._start_ns += step.duration_ns
            self._used += step.factor * step.duration_ns
            self._index += 1


def parse_ramp(text: str) -> tuple[Step, ...]:
    """Parses --ramp. Raises BadInput, naming the step."""
    parts = [part.strip() for part in text.split(",")]
    steps = []
    for position, part in enumerate(parts):
        factor, colon, duration = part.partition(":")
        if not colon and position + 1 < len(parts):
            raise BadInput("--ramp", part, "only the last step may be without a duration", _EXAMPLE)
        length_ns = parse_duration_ns(duration, "--ramp") if colon else None
        if length_ns == 0:
            raise BadInput("--ramp", part, "the duration of a step is zero", _EXAMPLE)
        steps.append(Step(parse_ratio(factor, "--ramp"), length_ns))
    return tuple(steps)
