"""The requests of a live session: they come from clients and are stamped in emulated time as they come."""

from collections import deque
from collections.abc import Iterable

from stageline.engine.types import NEVER, Cancellation, Request

EARLY_NS = 500_000  # an edge may be passed that much early, in wall time: timers are good to a millisecond


class LiveWorkload:
    """A Workload whose future is open. Arrivals are stamped at the next edge of a quantum; nothing comes before it.

    That edge is what the router may act up to and promise. It never moves back, whatever the clock does.
    """

    reactive = False

    def __init__(self, quantum_wall_ns: int, dilation: float) -> None:
        self.quantum_ns = max(1, round(quantum_wall_ns / dilation))
        self.edge_ns = 0  # the stamp of whatever comes now
        self.changes = 0  # how often something has come
        self._early_ns = round(EARLY_NS / dilation)
        self._events: deque[tuple[int, Request | Cancellation]] = deque()
        self._closed = False

    def move_to(self, now_ns: int) -> int:
        """Emulated time has come to `now_ns`; returns the stamp of whatever comes now."""
        edge_ns = ((now_ns + self._early_ns) // self.quantum_ns + 1) * self.quantum_ns
        if edge_ns > self.edge_ns:
            self.edge_ns = edge_ns
        return self.edge_ns

    def resume(self, events: Iterable[tuple[int, Request | Cancellation]], edge_ns: int) -> None:
        """Begin with all that came to another one, whose edge was there."""
        self._events.extend(events)
        self.edge_ns = edge_ns

    def edge_before(self, time_ns: int) -> int:
        """From this emulated time on `time_ns` lies before the edge."""
        return time_ns // self.quantum_ns * self.quantum_ns - self._early_ns

    def put(self, at_ns: int, event: Request | Cancellation) -> None:
        """Take an event with the stamp that `move_to` has just given."""
        self._events.append((at_ns, event))
        self.changes += 1

    def close(self) -> None:
        """Nothing comes any more."""
        self._closed = True
        self.changes += 1

    @property
    def pending(self) -> int:
        """Events that have not been acted on."""
        return len(self._events)

    def next_arrival_ns(self) -> int | None:
        """See Workload."""
        return self._events[0][0] if self._events else None

    def horizon_ns(self) -> int:
        """See Workload."""
        return NEVER if self._closed else self.edge_ns

    def take(self) -> Request | Cancellation:
        """See Workload."""
        return self._events.popleft()[1]

    def finished(self, index: int, now_ns: int) -> None:
        """Clients do as they like."""
