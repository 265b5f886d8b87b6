"""The service model of a `MeasuredCost` entry: linear interpolation on curves and on a grid."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise

from stageline.cost.measured_entries import AttentionGrid, Curve, MeasuredCost, Surface
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


def place(axis: Sequence[int], x: float) -> tuple[int, float, float]:
    """(index of the segment with x, position in it from 0 to 1, x over the last point if that is above 1)."""
    i, f = segment(axis, x)
    return (i, f, 1.0) if f <= 1.0 else (i, 1.0, x / axis[-1])


Row = tuple[list[float], list[float]]  # times of all columns, and the steps from each to the next


def surface_row(surface: Surface, sequences: int) -> Row:
    """Times of all columns for a number of sequences."""
    width, ns = len(surface.columns), surface.ns
    i, f, beyond = place(surface.rows, sequences)
    low, high = ns[i * width : (i + 1) * width], ns[(i + 1) * width : (i + 2) * width]
    times = [(a + (b - a) * f) * beyond for a, b in zip(low, high, strict=True)]
    return times, [b - a for a, b in pairwise(times)]


def surface_ns(surface: Surface) -> Callable[[float, int, int, int], float]:
    """The time of a phase by (pair_ns x its query-key pairs, KV tokens, new tokens, sequences); 0 without sequences."""
    rows, columns, context = dict[int, Row](), surface.columns, surface.by == "context"
    first, last, ends, pair_ns, kv_ns = columns[0], columns[-1], len(columns) - 2, surface.pair_ns, surface.kv_ns

    def ns(work: float, kv: int, tokens: int, sequences: int) -> float:
        if not sequences:
            return 0.0
        row = rows.get(sequences)
        if row is None:
            row = rows[sequences] = surface_row(surface, sequences)
        times, steps = row
        column = kv / sequences if context else tokens / sequences
        if column <= first:
            time = times[0]
        elif column < last:
            i = bisect_right(columns, column) - 1
            low = columns[i]
            time = times[i] + steps[i] * ((column - low) / (columns[i + 1] - low))
        else:
            time = (times[ends] + steps[ends]) * (column / last)
        if context:
            extra = work - pair_ns * kv
            return time + extra if extra > 0.0 else time
        extra = work - pair_ns * (tokens * (column + 1.0) / 2.0)
        return time + (extra if extra > 0.0 else 0.0) + kv_ns * (kv - tokens)

    return ns


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
