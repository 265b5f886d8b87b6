"""The replicas of a router by their next event, so that finding the earliest costs O(log replicas)."""

import heapq

from stageline.engine.types import NEVER

Event = tuple[int, bool, int]  # time, whether it is a formation (completions go first), replica


class Agenda:
    """Holds one event of each replica: one to act on, or a completion of which only a lower bound is known.

    Entries that `put` has replaced stay in their heap until they come to its top.
    """

    def __init__(self, replicas: int) -> None:
        self._current: list[Event | None] = [None] * replicas
        self._known: list[Event] = []
        self._unknown: list[Event] = []

    def put(self, event: Event, known: bool) -> None:
        """This is its replica's event from now on; at NEVER it has none."""
        if event[0] >= NEVER:
            self._current[event[2]] = None
            return
        self._current[event[2]] = event
        heapq.heappush(self._known if known else self._unknown, event)

    def known(self) -> Event | None:
        """The earliest event to act on."""
        return self._first(self._known)

    def unknown_ns(self) -> int:
        """The earliest time at which a completion may be that is not known; NEVER when all are known."""
        event = self._first(self._unknown)
        return NEVER if event is None else event[0]

    def take(self) -> None:
        """Remove the event that `known` has just named."""
        self._current[heapq.heappop(self._known)[2]] = None

    def precedes(self, event: Event) -> bool:
        """Whether there is an earlier event to act on."""
        first = self.known()
        return first is not None and first < event

    def _first(self, heap: list[Event]) -> Event | None:
        current = self._current
        while heap:
            event = heap[0]
            if current[event[2]] is event:
                return event
            heapq.heappop(heap)
        return None


class SoloAgenda(Agenda):
    """The agenda of one replica, which needs no heap."""

    def __init__(self) -> None:
        super().__init__(1)
        self._event: Event | None = None
        self._bound_ns = NEVER

    def put(self, event: Event, known: bool) -> None:
        """See Agenda."""
        self._event, self._bound_ns = None, NEVER
        if not known:
            self._bound_ns = event[0]
        elif event[0] < NEVER:
            self._event = event

    def known(self) -> Event | None:
        """See Agenda."""
        return self._event

    def unknown_ns(self) -> int:
        """See Agenda."""
        return self._bound_ns

    def take(self) -> None:
        """See Agenda."""
        self._event = None
