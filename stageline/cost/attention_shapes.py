"""Attention times of a model's heads from kernel tables, as surfaces by sequences and tokens."""

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

from stageline.cost.gemm_shapes import TABLE_FORMATS
from stageline.cost.kernel_rows import KernelTable, bracket
from stageline.cost.measured_entries import Surface

Point = tuple[int, int]  # sequences, tokens of one
Points = dict[Point, float]
By = Literal["context", "chunk"]


class Heads(NamedTuple):
    """What identifies an attention kernel's rows, but for the number of query heads."""

    kv_heads: int
    width: int
    window: int
    kv_format: str


class Found(NamedTuple):
    """A surface, and what is to be said about it: "" if these heads were measured."""

    surface: Surface
    note: str


class AttentionShapes:
    """Points by heads."""

    def __init__(self, by: By, points: dict[Heads, dict[int, Points]]) -> None:
        self.by: By = by
        self._points = points

    def at(self, heads: int, kind: Heads) -> Found | None:
        """The surface of that many query heads on a rank; None if the tables have none of the kind.

        Between two measured numbers of heads, linear.
        """
        measured = self._points.get(kind)
        if not measured:
            return None
        counts = sorted(measured)
        low, high = bracket(counts, heads)
        points, note = measured[low], ""
        if low != heads or high != heads:
            note = (
                f"{heads} heads from rows of {low} and {high}" if low != high else f"{heads} heads from rows of {low}"
            )
            f = (heads - low) / (high - low) if high > low else heads / low - 1
            upper = measured[high] if high > low else {p: 2 * ns for p, ns in points.items()}
            points = {p: points[p] + (upper[p] - points[p]) * f for p in points.keys() & upper.keys()}
        return Found(surface(points, self.by), note)


def surface(points: Points, by: By) -> Surface:
    """The whole grid over measured points.

    A missing one grows in proportion from the next smaller number of sequences, or else of tokens; where there is
    neither, it is the least of the larger ones.
    """
    rows, columns = (sorted({p[i] for p in points}) for i in (0, 1))
    filled = [[_filled(points, rows, columns, r, c) for c in columns] for r in rows]
    for axis in (rows, columns):
        if len(axis) == 1:
            axis.append(2 * axis[0])
            filled = [*filled, [2 * x for x in filled[0]]] if axis is rows else [[*r, 2 * r[0]] for r in filled]
    return Surface(by=by, rows=tuple(rows), columns=tuple(columns), ns=tuple(x for row in filled for x in row))


def _filled(points: Points, rows: list[int], columns: list[int], r: int, c: int) -> float:
    if (r, c) in points:
        return points[r, c]
    fewer = [x for x in rows if x < r and (x, c) in points]
    if fewer:
        return points[fewer[-1], c] * r / fewer[-1]
    shorter = [x for x in columns if x < c and (r, x) in points]
    if shorter:
        return points[r, shorter[-1]] * c / shorter[-1]
    larger = [ns for p, ns in points.items() if p[0] >= r and p[1] >= c]
    return min(larger, default=max(points.values()))


def attention_shapes(tables: Iterable[KernelTable], by: By) -> AttentionShapes | None:
    """Of the first table. Rows of several kernels count with the fastest. Raises BadInput."""
    table = next(iter(tables), None)
    if table is None:
        return None
    names = ("batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim", "kv_cache_dtype", "latency")
    windows = table.columns.get("window_size") or [0] * len(table.columns.get("latency", ()))
    found: dict[Heads, dict[int, Points]] = {}
    for number, (row, window) in enumerate(zip(table.rows(*names), windows, strict=True)):
        batch, isl, step, heads, kv_heads, width = (int(x) for x in row[:6])
        kind = Heads(kv_heads, width, int(window), "fp8" if str(row[6]) == "fp8" else "bf16")
        point = (batch, step + 1 if by == "context" else isl)
        points = found.setdefault(kind, {}).setdefault(heads, {})
        points[point] = min(table.latency_ns(number, row[7]), points.get(point, math.inf))
    return AttentionShapes(by, found)


def mla_shapes(tables: Iterable[KernelTable], by: By, gemm: str) -> AttentionShapes | None:
    """Of the first table: modules with all projections in a GEMM format, by local heads. Raises BadInput."""
    table = next(iter(tables), None)
    if table is None:
        return None
    names = ("batch_size", "isl", "step", "num_heads", "kv_cache_dtype", "gemm_type", "latency")
    found: dict[Heads, dict[int, Points]] = {}
    for number, row in enumerate(table.rows(*names)):
        if TABLE_FORMATS.get(str(row[5])) != gemm:
            continue
        batch, isl, step, heads = (int(x) for x in row[:4])
        kind = Heads(1, 0, 0, "fp8" if str(row[4]) == "fp8" else "bf16")
        points = found.setdefault(kind, {}).setdefault(heads, {})
        point = (batch, step if by == "context" else isl)
        points[point] = min(table.latency_ns(number, row[6]), points.get(point, math.inf))
    return AttentionShapes(by, found)


LINEAR = Heads(0, 0, 0, "")


def linear_shapes(table: KernelTable, key_heads: int, *, decode: bool) -> AttentionShapes:
    """Convolution and scan of linear attention, added, by value heads; of several scans the fastest. Raises BadInput.

    A fused decode kernel holds the convolution. Rows with as many key heads are preferred.
    """
    names = ("kernel_source", "phase", "batch_size", "seq_len", "num_k_heads", "num_v_heads", "latency")
    parts: dict[tuple[int, int], dict[str, Points]] = {}
    for number, row in enumerate(table.rows(*names)):
        if (row[1] == "context") == decode:
            continue
        batch, length, keys, values = (int(x) for x in row[2:6])
        points = parts.setdefault((values, keys), {}).setdefault(str(row[0]), {})
        points[batch, length] = min(table.latency_ns(number, row[6]), points.get((batch, length), math.inf))
    found: dict[int, Points] = {}
    for (values, _), kernels in sorted(parts.items(), key=lambda x: (x[0][0], x[0][1] != key_heads, x[0][1])):
        if values not in found and (merged := _merged(kernels)):
            found[values] = merged
    return AttentionShapes("chunk", {LINEAR: found})


def _merged(kernels: dict[str, Points]) -> Points:
    conv = [points for source, points in kernels.items() if "conv1d" in source]
    best: Points = {}
    for source, points in kernels.items():
        if "conv1d" in source:
            continue
        whole = "fused_decode" in source or "fused_kda_decode" in source
        for point, ns in points.items():
            before = [c[point] for c in conv if point in c]
            if whole or before:
                best[point] = min(best.get(point, math.inf), ns + (0.0 if whole else min(before)))
    return best
