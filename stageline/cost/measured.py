"""The service model of a `Measured` entry: one line of a curve, one cell of a grid."""

from bisect import bisect_right
from collections.abc import Sequence

from stageline.cost.measured_entries import AttentionGrid, Curve, MeasuredCost
from stageline.cost.totals import BatchTotals


def segment(axis: Sequence[int], x: float) -> tuple[int, float]:
    """(index of the segment, position in it): 0 at or left of its start, above 1 right of the last point."""
    if x <= axis[0]:
        return 0, 0.0
    i = min(bisect_right(axis, x), len(axis) - 1) - 1
    return i, (x - axis[i]) / (axis[i + 1] - axis[i])


def curve_ns(curve: Curve, x: int) -> float:
    """lo + (hi - lo) * position."""
    i, f = segment(curve.at, x)
    lo = curve.ns[i]
    return lo + (curve.ns[i + 1] - lo) * f


def coordinates(totals: BatchTotals) -> tuple[float, float, float, float]:
    """Where a microbatch lies in an attention grid."""
    sequences = totals.decode_sequences
    mean_kv = totals.decode_kv_tokens / sequences if sequences else 0.0
    return (totals.prefill_tokens, totals.prefill_kv_tokens - totals.prefill_tokens, sequences, mean_kv)


class GridTable:
    """A grid with its strides; cells are reduced along the fastest axis first, which fixes every rounding."""

    def __init__(self, grid: AttentionGrid) -> None:
        self.axes, self.ns = grid.axes(), grid.ns
        self.strides = [0, 0, 0, 1]
        for i in (2, 1, 0):
            self.strides[i] = self.strides[i + 1] * len(self.axes[i + 1])

    def at(self, point: Sequence[float]) -> float:
        """Multilinear between the corners of the cell."""
        places = [segment(axis, x) for axis, x in zip(self.axes, point, strict=True)]
        base = sum(i * stride for (i, _), stride in zip(places, self.strides, strict=True))
        return self._reduce(0, base, [f for _, f in places])

    def _reduce(self, axis: int, base: int, positions: list[float]) -> float:
        """A position of 0 needs no upper neighbour: lo + (hi - lo) * 0 is lo to the bit."""
        if axis == len(self.axes):
            return self.ns[base]
        lo = self._reduce(axis + 1, base, positions)
        f = positions[axis]
        if f == 0.0:
            return lo
        return lo + (self._reduce(axis + 1, base + self.strides[axis], positions) - lo) * f


class MeasuredModel:
    """See `Measured`."""

    uses_draw = False

    def __init__(self, entry: MeasuredCost) -> None:
        self._entry = entry
        self._grid = GridTable(entry.attention)

    def service_ns(self, totals: BatchTotals, draw: int = 0) -> int:
        """Rounded half-even once; at least 1."""
        ns = curve_ns(self._entry.tokens, totals.tokens) + self._grid.at(coordinates(totals))
        if self._entry.sampled and totals.sampled:
            ns += curve_ns(self._entry.sampled, totals.sampled)
        return max(round(ns), 1)
