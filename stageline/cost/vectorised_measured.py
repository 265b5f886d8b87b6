"""The vectorised twin of `stageline.cost.measured`, equal to the last bit."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stageline.cost.arrays import Columns, DrawArray, FloatArray, IntArray, VectorisedModel
from stageline.cost.measured import GridTable
from stageline.cost.measured_entries import Curve, MeasuredCost, Surface


def _segments(axis: Sequence[int], x: IntArray | FloatArray) -> tuple[IntArray, FloatArray]:
    points = np.array(axis, dtype=np.int64)
    i = np.clip(np.searchsorted(points, x, side="right") - 1, 0, len(axis) - 2)
    f = np.where(x <= points[0], 0.0, (x - points[i]) / (points[i + 1] - points[i]))
    return i, f


def _curve(curve: Curve) -> Callable[[IntArray], FloatArray]:
    values = np.array(curve.ns)

    def at(x: IntArray) -> FloatArray:
        i, f = _segments(curve.at, x)
        out: FloatArray = values[i] + (values[i + 1] - values[i]) * f
        return out

    return at


def _place(axis: Sequence[int], x: IntArray | FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
    i, f = _segments(axis, x)
    within = f <= 1.0
    return i, np.where(within, f, 1.0), np.where(within, 1.0, x / axis[-1])


def surface_of(surface: Surface) -> Callable[[npt.NDArray[np.floating[Any]], IntArray, IntArray, IntArray], FloatArray]:
    """The vectorised `surface_ns`."""
    values, width = np.array(surface.ns), len(surface.columns)

    def at(work: npt.NDArray[np.floating[Any]], kv: IntArray, tokens: IntArray, sequences: IntArray) -> FloatArray:
        some = np.maximum(sequences, 1)
        context = surface.by == "context"
        column = kv / some if context else tokens / some
        base = surface.pair_ns * (kv if context else tokens * (column + 1.0) / 2.0)
        history = surface.kv_ns * (np.zeros(len(kv)) if context else kv - tokens)
        i, f, rows_beyond = _place(surface.rows, some)
        j, g, columns_beyond = _place(surface.columns, column)

        def row(k: IntArray) -> FloatArray:
            low, high = values[i * width + k], values[(i + 1) * width + k]
            out: FloatArray = (low + (high - low) * f) * rows_beyond
            return out

        low, high = row(j), row(j + 1)
        ns = (low + (high - low) * g) * columns_beyond
        ns = ns + np.maximum(work - base, 0.0) + history
        out: FloatArray = np.where(sequences > 0, ns, 0.0)
        return out

    return at


def _grid(table: GridTable) -> Callable[[Sequence[IntArray | FloatArray]], FloatArray]:
    values, strides = np.array(table.ns), table.strides

    def at(point: Sequence[IntArray | FloatArray]) -> FloatArray:
        segments = [_segments(axis, x) for axis, x in zip(table.axes, point, strict=True)]
        base = sum(
            (i * s for (i, _), s in zip(segments, strides, strict=True)), np.zeros(len(point[0]), dtype=np.int64)
        )

        def reduce(axis: int, base: IntArray) -> FloatArray:
            if axis == len(segments):
                cell: FloatArray = values[base]
                return cell
            lo, hi = reduce(axis + 1, base), reduce(axis + 1, base + strides[axis])
            out: FloatArray = lo + (hi - lo) * segments[axis][1]
            return out

        return reduce(0, base)

    return at


def vectorised_measured(entry: MeasuredCost) -> VectorisedModel:
    """The vectorised `MeasuredModel`, which uses no draws."""
    tokens_ns, attention_ns = _curve(entry.tokens), _grid(GridTable(entry.attention))
    head_ns = _curve(entry.sampled) if entry.sampled else None

    def service_ns(c: Columns, draws: DrawArray | None = None) -> IntArray:
        sequences = c["decode_sequences"]
        mean_kv = np.where(sequences > 0, c["decode_kv_tokens"] / np.maximum(sequences, 1), 0.0)
        history = c["prefill_kv_tokens"] - c["prefill_tokens"]
        ns = tokens_ns(c["decode_tokens"] + c["prefill_tokens"])
        ns = ns + attention_ns((c["prefill_tokens"], history, sequences, mean_kv))
        if head_ns:
            ns = np.where(c["sampled"] > 0, ns + head_ns(c["sampled"]), ns)
        out: IntArray = np.maximum(np.rint(ns).astype(np.int64), 1)
        return out

    return service_ns
