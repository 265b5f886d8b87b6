"""The service model of a `MeasuredCost` entry: linear interpolation on curves and on a grid."""

from bisect import bisect_right
from collections.abc import Sequence

from stageline.cost.measured_entries import AttentionGrid, Curve, MeasuredCost
from stageline.cost.totals import BatchTotals


def segment(axis: Sequence[int], x: float) -> tuple[int, float]:
    """(index of the segment of `axis` with x, position in it).

    The position is 0 at the segment's start and left of the first point, and above 1 right of the last point.
    """
    if x <= axis[0]:
        return 0, 0.0
    i = min(bisect_right(axis, x), len(axis) - 1) - 1
    return i, (x - axis[i]) / (axis[i + 1] - axis[i])


def curve_ns(curve: Curve, x: int) -> float:
    """lo + (hi - lo) x position, on the segment with x."""
    i, f = segment(curve.at, x)
    lo = curve.ns[i]
    return lo + (curve.ns[i + 1] - lo) * f


def coordinates(totals: BatchTotals) -> tuple[float, float, float, float]:
    """The point of a microbatch in an AttentionGrid: new prefill tokens, their history, sequences, mean KV."""
    sequences = totals.decode_sequences
    mean_kv = totals.decode_kv_tokens / sequences if sequences else 0.0
    return (totals.prefill_tokens, totals.prefill_kv_tokens - totals.prefill_tokens, sequences, mean_kv)


class GridTable:
    """An AttentionGrid with its strides. Interpolation reduces the fastest axis first, which fixes all roundings."""

    def __init__(self, grid: AttentionGrid) -> None:
        self.axes, self.ns = grid.axes(), grid.ns
        self.strides = [0, 0, 0, 1]
        for i in (2, 1, 0):
            self.strides[i] = self.strides[i + 1] * len(self.axes[i + 1])

    def at(self, point: Sequence[float]) -> float:
        """Multilinear interpolation between the corners of the cell that holds `point`."""
        segments = [segment(axis, x) for axis, x in zip(self.axes, point, strict=True)]
        base = sum(i * stride for (i, _), stride in zip(segments, self.strides, strict=True))
        return self._reduce(0, base, [f for _, f in segments])

    def _reduce(self, axis: int, base: int, positions: list[float]) -> float:
        """At position 0 the upper neighbour is not read: lo + (hi - lo) x 0 is lo to the last bit."""
        if axis == len(self.axes):
            return self.ns[base]
        lo = self._reduce(axis + 1, base, positions)
        f = positions[axis]
        if f == 0.0:
            return lo
        return lo + (self._reduce(axis + 1, base + self.strides[axis], positions) - lo) * f


class MeasuredModel:
    """See `MeasuredCost`."""

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
