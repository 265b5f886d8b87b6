"""Maps between the workload's time (emulated, if the server states its dilation) and wall time."""

from fractions import Fraction

from stageline.units import rounded_ratio


class TimeMap:
    """`factor`: wall time per workload time, exactly. A run begins at wall time `start_ns` and workload time 0."""

    def __init__(self, factor: Fraction, start_ns: int) -> None:
        self._factor = factor
        self.start_ns = start_ns

    def wall_ns(self, workload_ns: int) -> int:
        """Workload time → wall time."""
        return self.start_ns + self.stretched_ns(workload_ns)

    def workload_ns(self, wall_ns: int) -> int:
        """Wall time → workload time, at least 0."""
        return self.shrunk_ns(max(0, wall_ns - self.start_ns))

    def stretched_ns(self, span_ns: int) -> int:
        """A span of workload time in wall time."""
        return rounded_ratio(span_ns * self._factor.numerator, self._factor.denominator)

    def shrunk_ns(self, span_ns: int) -> int:
        """A span of wall time in workload time."""
        return rounded_ratio(span_ns * self._factor.denominator, self._factor.numerator)
