"""The requests of a run that its client has sent."""

from collections import deque

from stageline.engine.types import NEVER, Cancellation, Request
from stageline.errors import ProtocolError


class SentWorkload:
    """Holds the requests of a run in the order of arrival; see `stageline.engine.types.Workload`."""

    reactive = False

    def __init__(self) -> None:
        self._requests: deque[Request | Cancellation] = deque()
        self._indexes: set[int] = set()
        self.total = 0

    def add(self, requests: list[Request | Cancellation]) -> None:
        """Takes some more. Raises ProtocolError when they are out of order or named twice."""
        for request in requests:
            if self._requests and _time_ns(request) < _time_ns(self._requests[-1]):
                raise ProtocolError(f"request {request.index} arrives before the one that was sent ahead of it")
            self._requests.append(request)
            if isinstance(request, Cancellation):
                continue
            if request.index in self._indexes:
                raise ProtocolError(f"request {request.index} was sent twice")
            self._indexes.add(request.index)
            self.total += 1

    def next_arrival_ns(self) -> int | None:
        """See Workload."""
        return _time_ns(self._requests[0]) if self._requests else None

    def horizon_ns(self) -> int:
        """See Workload: a run begins when all rows are here."""
        return NEVER

    def take(self) -> Request | Cancellation:
        """See Workload."""
        return self._requests.popleft()

    def finished(self, index: int, now_ns: int) -> None:
        """Arrivals depend on nothing."""


def _time_ns(event: Request | Cancellation) -> int:
    return event.at_ns if isinstance(event, Cancellation) else event.arrival_ns
