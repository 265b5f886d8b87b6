"""Checks of the curves and grids of a measured cost entry."""

import math
from collections.abc import Sequence
from itertools import pairwise

from stageline.cost.measured_entries import AttentionGrid, Curve, MeasuredCost, Surface
from stageline.errors import BadInput

MAX_POINTS, MAX_POINT_NS, MAX_AXIS = 1 << 20, 1e12, 1 << 40


def check_measured(entry: MeasuredCost, at: str) -> None:
    """Refuse axes that do not ascend, times that fall along an axis, and wrong counts. Raises BadInput."""
    _curve(entry.tokens, f"{at}.tokens")
    if entry.sampled:
        _curve(entry.sampled, f"{at}.sampled")
    _grid(entry.attention, f"{at}.attention")


def _axis(axis: Sequence[int], at: str) -> None:
    if len(axis) < 2 or axis[0] < 0 or axis[-1] > MAX_AXIS or any(b <= a for a, b in pairwise(axis)):
        raise BadInput(at, list(axis)[:8], "an axis has two or more ascending counts")


def _times(ns: Sequence[float], expected: int, at: str) -> None:
    if len(ns) != expected or expected > MAX_POINTS:
        raise BadInput(at, len(ns), f"the axes have {expected:,} points (at most {MAX_POINTS:,})")
    for i, value in enumerate(ns):
        if not (math.isfinite(value) and 0 <= value <= MAX_POINT_NS):
            raise BadInput(f"{at}[{i}]", value, f"must lie between 0 and {MAX_POINT_NS:g}")


def _curve(curve: Curve, at: str) -> None:
    _axis(curve.at, f"{at}.at")
    _times(curve.ns, len(curve.at), f"{at}.ns")
    for i, (a, b) in enumerate(pairwise(curve.ns)):
        if b < a:
            raise BadInput(f"{at}.ns[{i + 1}]", b, f"less than {a} before it: times must not fall")


def check_curve(curve: Curve, at: str) -> None:
    """Times may fall, but not at the end, which extrapolates. Raises BadInput."""
    _axis(curve.at, f"{at}.at")
    _times(curve.ns, len(curve.at), f"{at}.ns")
    if curve.ns[-1] < curve.ns[-2]:
        reason = f"less than {curve.ns[-2]} before it: the last time must not fall"
        raise BadInput(f"{at}.ns[{len(curve.ns) - 1}]", curve.ns[-1], reason)


def check_surface(surface: Surface, at: str) -> None:
    """Times may fall. Raises BadInput."""
    _axis(surface.rows, f"{at}.rows")
    _axis(surface.columns, f"{at}.columns")
    _times(surface.ns, len(surface.rows) * len(surface.columns), f"{at}.ns")


def _grid(grid: AttentionGrid, at: str) -> None:
    names = ("chunk", "history", "sequences", "kv")
    for name in names:
        _axis(getattr(grid, name), f"{at}.{name}")
    _times(grid.ns, math.prod(len(axis) for axis in grid.axes()), f"{at}.ns")
    stride = 1
    for name, axis in zip(reversed(names), reversed(grid.axes()), strict=True):
        for i in range(len(grid.ns) - stride):
            if (i // stride) % len(axis) < len(axis) - 1 and grid.ns[i + stride] < grid.ns[i]:
                raise BadInput(
                    f"{at}.ns[{i + stride}]", grid.ns[i + stride], f"falls along {name}: times must not fall"
                )
        stride *= len(axis)
