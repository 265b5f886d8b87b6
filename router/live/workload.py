"""Where the requests of a live session come from: clients, stamped in emulated time as they come."""

from collections import deque

from stageline.engine.types import NEVER, Cancellation, Request
from stageline.runtime.clock import LiveClock

EARLY_NS = 500_000  # an edge may be passed so much early, in wall time: timers are good to a millisecond


class LiveWorkload:
    """A Workload whose future is open. Arrivals are stamped at the next open edge of a quantum; nothing comes
    before it.

    That edge is what the router may act up to and promise; it never moves back, whatever the clock does.
    """

    reactive = False

    def __init__(self, clock: LiveClock, quantum_wall_ns: int) -> None:
        self._clock = clock
        self.quantum_ns = max(1, round(quantum_wall_ns / clock.dilation))
        self._early_ns = round(EARLY_NS / clock.dilation)
        self._events: deque[tuple[int, Request | Cancellation]] = deque()
        self._edge_ns = 0
        self._closed = False

    def open_edge_ns(self) -> int:
        """The stamp of whatever comes now."""
        edge = ((self._clock.now_ns() + self._early_ns) // self.quantum_ns + 1) * self.quantum_ns
        self._edge_ns = max(self._edge_ns, edge)
        return self._edge_ns

    @property
    def promised_ns(self) -> int:
        """The last edge given."""
        return self._edge_ns

    def edge_before(self, time_ns: int) -> int:
        """When the wall reaches this, `time_ns` lies before the open edge."""
        return time_ns // self.quantum_ns * self.quantum_ns - self._early_ns

    def put(self, at_ns: int, event: Request | Cancellation) -> None:
        """Takes an event with the stamp `open_edge_ns` has just given."""
        self._events.append((at_ns, event))

    def close(self) -> None:
        """Nothing comes any more."""
        self._closed = True

    @property
    def pending(self) -> int:
        """Events that have not been acted on."""
        return len(self._events)

    def next_arrival_ns(self) -> int | None:
        """See Workload."""
        return self._events[0][0] if self._events else None

    def horizon_ns(self) -> int:
        """See Workload."""
        return NEVER if self._closed else self.open_edge_ns()

    def take(self) -> Request | Cancellation:
        """See Workload."""
        return self._events.popleft()[1]

    def finished(self, index: int, now_ns: int) -> None:
        """Clients do as they like."""
