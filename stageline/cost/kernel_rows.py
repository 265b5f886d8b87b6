"""Rows of kernel tables as the readers hand them over, and interpolation between the shapes that they hold.

A time of a shape that was not measured is that of a formula, times the measured / formula of the shapes around it:
exact at measured shapes, and smooth in between.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from stageline.cost.measured_entries import Curve
from stageline.errors import BadInput

NS_PER_MS = 1e6
Column = Sequence[int | float | str]
Times = Mapping[int, float]  # tokens -> ns
Formula = Callable[[int], float]  # tokens -> ns


class KernelTable(NamedTuple):
    """One file of a kernel table: its name for errors, and its columns, all of one length."""

    place: str
    columns: Mapping[str, Column]

    def rows(self, *names: str) -> Iterator[tuple[int | float | str, ...]]:
        """The named columns, row by row. Raises BadInput for one that is missing."""
        missing = [name for name in names if name not in self.columns]
        if missing:
            raise BadInput(self.place, missing[0], "no such column", f"it has {', '.join(self.columns)}")
        yield from zip(*(self.columns[name] for name in names), strict=True)

    def has(self, name: str) -> bool:
        """Whether there is such a column."""
        return name in self.columns

    def latency_ns(self, row: int, ms: int | float | str) -> float:
        """A cell of the latency column. Raises BadInput."""
        if isinstance(ms, str) or not 0 < ms < NS_PER_MS:
            raise BadInput(f"{self.place}: row {row}, column latency", ms, "not a time in ms above 0")
        return ms * NS_PER_MS


class Sourced(NamedTuple):
    """Times of a shape by tokens, and what is to be said about them: "" if the shape itself was measured."""

    times: dict[int, float]
    note: str


def bracket(values: Sequence[int], x: float) -> tuple[int, int]:
    """The neighbours of x in an ascending sequence; twice the end for x outside."""
    below = [v for v in values if v <= x]
    above = [v for v in values if v >= x]
    low = below[-1] if below else values[0]
    return low, above[0] if above else values[-1]


def weight(low: float, high: float, x: float) -> float:
    """Position of x between two values on a logarithmic axis, from 0 to 1."""
    if high <= low:
        return 0.0
    return min(1.0, max(0.0, math.log(x / low) / math.log(high / low)))


def blended(parts: Sequence[tuple[float, Times, Formula]], target: Formula) -> dict[int, float]:
    """Times of a shape: its formula times the geometric mean of measured / formula of (weight, times, formula) parts.

    At the tokens that all parts have.
    """
    total = sum(w for w, _, _ in parts)
    shared = set.intersection(*(set(times) for _, times, _ in parts))
    found = {}
    for tokens in sorted(shared):
        log = sum(w / total * math.log(times[tokens] / formula(tokens)) for w, times, formula in parts)
        found[tokens] = target(tokens) * math.exp(log)
    return found


def curve(times: Times, scale: int = 1) -> Curve:
    """A Curve through at least two points; `scale`: tokens of a step for one token of the table.

    Measured times may fall; the last may not, so that times beyond the table don't fall without end.
    """
    at = sorted(times)
    ns = [times[x] for x in at]
    if len(at) == 1:
        at, ns = [at[0], at[0] + 1], [ns[0], ns[0]]
    ns[-1] = max(ns[-1], ns[-2])
    return Curve(at=tuple(x * scale for x in at), ns=tuple(ns))
