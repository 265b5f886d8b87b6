"""Which results no other result beats in everything that counts."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def front(items: Sequence[T], goods: Callable[[T], Sequence[float]]) -> list[bool]:
    """For each item whether it is on the front: none is at least as good in all of `goods` and better in one.

    Larger is better everywhere; equal items are all on it.
    """
    points = [tuple(goods(item)) for item in items]

    def beaten(p: tuple[float, ...]) -> bool:
        return any(all(a >= b for a, b in zip(q, p, strict=True)) and q != p for q in points)

    return [not beaten(p) for p in points]
