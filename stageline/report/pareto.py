"""The Pareto front: results that no other result dominates."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def pareto_front(items: Sequence[T], objectives: Callable[[T], Sequence[float]]) -> list[bool]:
    """Whether each item is on the front: no other is at least as good in all of `objectives` and better in one.

    Larger is better everywhere; equal items are all on it.
    """
    points = [tuple(objectives(item)) for item in items]

    def dominated(p: tuple[float, ...]) -> bool:
        return any(all(a >= b for a, b in zip(q, p, strict=True)) and q != p for q in points)

    return [not dominated(p) for p in points]
