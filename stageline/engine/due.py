"""What the router itself has to do at some time: bindings and ends of hand-overs, landings (rules 11 and 12)."""

import heapq
from collections.abc import Callable

from stageline.engine.sequence import Sequence
from stageline.engine.types import NEVER

BIND, END, LAND = range(3)  # the order of what is due at one instant
Order = tuple[int, int, int]  # who goes first among equals
Action = Callable[[int], Sequence | None]  # told the time; returns what has landed after its client had left


class DueEvents:
    """The router's own timers, and the replicas that may form because of them. `now_ns` is the router's time."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.touched: list[int] = []  # replicas that may form because of what has happened elsewhere
        self._heap: list[tuple[int, int, Order, Action]] = []
        self._booked = 0

    @property
    def next_ns(self) -> int:
        """When the next one is due."""
        return self._heap[0][0] if self._heap else NEVER

    def add(self, at_ns: int, kind: int, order: Order, action: Action) -> None:
        """Something is due at that time."""
        heapq.heappush(self._heap, (at_ns, kind, order, action))

    def book(self) -> Order:
        """The order of what is booked now, after all that was booked before."""
        self._booked += 1
        return self._booked, 0, 0

    def fire(self) -> Sequence | None:
        """Do what is due next; returns the sequence that has landed after its client had left, to be ended."""
        now_ns, _, _, action = heapq.heappop(self._heap)
        return action(now_ns)
