"""Two clocks: the workload's (emulated, when the server says its dilation) and the wall's."""

from fractions import Fraction

from stageline.units import rounded_ratio


class Pace:
    """Wall time per time of the workload, exactly; a run begins at `start_ns` of the wall and 0 of the workload."""

    def __init__(self, factor: Fraction, start_ns: int) -> None:
        self._factor = factor
        self.start_ns = start_ns

    def wall_ns(self, workload_ns: int) -> int:
        """When the wall reaches a time of the workload."""
        return self.start_ns + self.stretched_ns(workload_ns)

    def workload_ns(self, wall_ns: int) -> int:
        """What the workload's clock shows at a time of the wall (not before the start)."""
        return self.shrunk_ns(max(0, wall_ns - self.start_ns))

    def stretched_ns(self, span_ns: int) -> int:
        """A span of the workload in wall time."""
        return rounded_ratio(span_ns * self._factor.numerator, self._factor.denominator)

    def shrunk_ns(self, span_ns: int) -> int:
        """A span of wall time in the workload's."""
        return rounded_ratio(span_ns * self._factor.denominator, self._factor.numerator)
