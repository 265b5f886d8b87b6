"""Measured costs of many microbatches at once, equal to `stageline.cost.measured` to the last bit. Imports numpy."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from stageline.cost.measured import GridTable
from stageline.cost.measured_entries import Curve, MeasuredCost

Ints = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
Columns = Mapping[str, Ints]


def _locate(axis: Sequence[int], x: npt.NDArray[np.int64 | np.float64]) -> tuple[Ints, Doubles]:
    points = np.array(axis, dtype=np.int64)
    i = np.clip(np.searchsorted(points, x, side="right") - 1, 0, len(axis) - 2)
    f = np.where(x <= points[0], 0.0, (x - points[i]) / (points[i + 1] - points[i]))
    return i, f


def _curve(curve: Curve) -> Callable[[Ints], Doubles]:
    values = np.array(curve.ns)

    def at(x: Ints) -> Doubles:
        i, f = _locate(curve.at, x)
        out: Doubles = values[i] + (values[i + 1] - values[i]) * f
        return out

    return at


def _grid(table: GridTable) -> Callable[[Sequence[npt.NDArray[np.int64 | np.float64]]], Doubles]:
    values, strides = np.array(table.ns), table.strides

    def at(point: Sequence[npt.NDArray[np.int64 | np.float64]]) -> Doubles:
        places = [_locate(axis, x) for axis, x in zip(table.axes, point, strict=True)]
        base = sum((i * s for (i, _), s in zip(places, strides, strict=True)), np.zeros(len(point[0]), dtype=np.int64))

        def reduce(axis: int, base: Ints) -> Doubles:
            if axis == len(places):
                cell: Doubles = values[base]
                return cell
            lo, hi = reduce(axis + 1, base), reduce(axis + 1, base + strides[axis])
            out: Doubles = lo + (hi - lo) * places[axis][1]
            return out

        return reduce(0, base)

    return at


def vectorised_measured(entry: MeasuredCost) -> Callable[[Columns, npt.NDArray[np.uint64] | None], Ints]:
    """The vectorised `MeasuredModel`; draws are not used."""
    tokens_ns, attention_ns = _curve(entry.tokens), _grid(GridTable(entry.attention))
    head_ns = _curve(entry.sampled) if entry.sampled else None

    def many(c: Columns, draws: npt.NDArray[np.uint64] | None = None) -> Ints:
        sequences = c["decode_sequences"]
        mean_kv = np.where(sequences > 0, c["decode_kv_tokens"] / np.maximum(sequences, 1), 0.0)
        history = c["prefill_kv_tokens"] - c["prefill_tokens"]
        ns = tokens_ns(c["decode_tokens"] + c["prefill_tokens"])
        ns = ns + attention_ns((c["prefill_tokens"], history, sequences, mean_kv))
        if head_ns:
            ns = np.where(c["sampled"] > 0, ns + head_ns(c["sampled"]), ns)
        out: Ints = np.maximum(np.rint(ns).astype(np.int64), 1)
        return out

    return many
